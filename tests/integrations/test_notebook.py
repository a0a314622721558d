"""A real notebook, run by a real kernel, shows a recording as a table. It is not in the everyday suite: Jupyter's packages are many."""

import nbclient
import nbformat


def test_a_run_is_shown_as_a_table(recording):
    cells = ["import vramline", f"vramline.load({str(recording)!r})"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    (shown,) = notebook.cells[1].outputs
    assert shown.output_type == "execute_result"
    # The peak of the run, which fixtures/README.md tells.
    assert "<table" in shown.data["text/html"] and "79.7 MiB" in shown.data["text/html"]
