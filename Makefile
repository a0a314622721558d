# The commands of this project. Each installs what it needs by itself.
#
#   make demo    build, install TensorFlow, train a small Keras model under `vramline run`, print the report
#   make test    the everyday suite: formatting, lints, Rust and Python tests (under 15 minutes on two cores)
#   make bench   time and memory against xprof on a large trace made here; a large log; what a recording costs; replay
#   make proof   the long tables, written into docs/ with versions and date
#   make gpu-proof   the ledger on a real GPU, written into docs/gpu-proof.md (vramline installed there, PyTorch, JAX)
#   make fuzz    ten minutes of fuzzing each reader (needs a nightly toolchain and cargo-fuzz)
#   make web     the script of the report page, from web/src into web/dist (needs Node; what is there is kept in git)
#   make screenshots   the pictures of the README, from the demo (docs/images)
#   make fmt     format everything

PYTHON ?= python3
VENV := .venv
OLDER := .venv-2.15
PIP_ENV := PIP_DISABLE_PIP_VERSION_CHECK=1
STAMP := $(VENV)/.installed

# The package brings the binary along: what the tests run is what users install.
BINARY := $(VENV)/bin/vramline
export VRAMLINE_BIN := $(abspath $(BINARY))

.PHONY: screenshots gpu-proof all demo build package older tools test lint test-rust test-python bench proof fuzz fmt clean

all: build

build: tools
	cargo build --release --locked

# A linker is the one thing that a Rust toolchain may lack.
tools:
	@command -v cc >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update -q && apt-get install -y -q gcc libc6-dev; }

demo: package
	$(BINARY) demo

test: lint test-rust test-python

lint: tools
	cargo fmt --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

test-rust: tools
	cargo test --workspace --locked

# Always installed anew: cargo and maturin do only what has changed.
package: tools $(STAMP)
	PATH="$(abspath $(VENV))/bin:$$PATH" $(PIP_ENV) $(VENV)/bin/python -m pip install -q --no-deps --force-reinstall --no-build-isolation .

# Vramline is built without Node: this is for those who change the page.
web:
	cd web && npm ci --no-audit --no-fund && npx tsc --noEmit && npm run --silent build

# For the tests of the page. Debian's where that can be had, else Playwright's own; without either these tests say so and are skipped.
browser: $(STAMP)
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update -q && apt-get install -y -q chromium fonts-dejavu-core; } \
	  || $(VENV)/bin/python -m playwright install chromium || echo "no browser: the page is not tested"
	@command -v npm >/dev/null && [ ! -d web/node_modules/esbuild ] && (cd web && npm ci --no-audit --no-fund --silent) || true

test-python: package browser
	$(VENV)/bin/python -m pytest -q -n 2 --dist loadfile tests/python

# Each is made by a script, from the demo.
screenshots: package browser
	for script in docs/screenshots/*.py; do $(VENV)/bin/python $$script || exit 1; done

bench: package
	$(VENV)/bin/python benches/against_xprof.py
	$(VENV)/bin/python benches/against_pickle.py
	$(VENV)/bin/python benches/oom_log.py
	$(VENV)/bin/python benches/recording_cost.py
	$(VENV)/bin/python benches/page.py
	cargo run --release --locked -p vramline --example replay_speed -- fixtures/tf221_cpu_cnn_from_start.xplane.pb
	cargo run --release --locked -p vramline --example replay_speed -- fixtures/torch2110_h200_resnet50_b64.snapshot.pickle.gz

proof: package
	$(VENV)/bin/python benches/against_xprof.py --write docs/benchmarks.md
	$(VENV)/bin/python benches/against_pickle.py --write docs/benchmarks.md
	$(VENV)/bin/python benches/page.py --write docs/benchmarks.md
	$(VENV)/bin/python benches/recording_cost.py --write docs/cost.md
	$(VENV)/bin/python benches/kill_nine.py
	$(VENV)/bin/python benches/clean_runs.py
	$(VENV)/bin/python benches/what_if.py --write docs/what-if.md
	$(VENV)/bin/python benches/accuracy.py gather
	$(VENV)/bin/python benches/accuracy.py compare --write docs/accuracy.md
	$(VENV)/bin/python benches/accuracy_gpu.py --write docs/accuracy-gpu.md
	$(VENV)/bin/python benches/fixes.py --write docs/accuracy-fixes.md
	$(MAKE) older

# On a machine with a GPU, PyTorch and JAX; needs no network there once the package is installed.
gpu-proof:
	$(PYTHON) tests/gpu/driver.py benches/out/driver
	$(PYTHON) tests/gpu/proof.py benches/out/gpu --write docs/gpu-proof.md

# The oldest TensorFlow that is supported, with Keras 2. It needs Python 3.11 or older.
older: package $(OLDER)/.installed
	PATH="$(abspath $(OLDER))/bin:$$PATH" $(PIP_ENV) $(OLDER)/bin/python -m pip install -q --no-deps --force-reinstall --no-build-isolation .
	VRAMLINE_BIN=$(abspath $(OLDER))/bin/vramline $(OLDER)/bin/python -m pytest -q tests/python/test_run.py

fuzz:
	cd fuzz && cargo +nightly fuzz run xplane -- -max_total_time=600 -max_len=65536
	mkdir -p fuzz/corpus/pprof fuzz/corpus/hlo
	gzip -dc fixtures/*.memory.prof > fuzz/corpus/pprof/jax && cp fixtures/*.hlo.pb fuzz/corpus/hlo/
	cd fuzz && cargo +nightly fuzz run pprof -- -max_total_time=600 -max_len=65536
	cd fuzz && cargo +nightly fuzz run hlo -- -max_total_time=600 -max_len=65536
	mkdir -p fuzz/corpus/recording && cp fixtures/*.vram/*.arrows fuzz/corpus/recording/
	cd fuzz && cargo +nightly fuzz run recording -- -max_total_time=600 -max_len=16384
	mkdir -p fuzz/corpus/pickle && for file in fixtures/torch/*.pickle.gz; do gunzip -c $$file > fuzz/corpus/pickle/$$(basename $$file .gz); done
	cd fuzz && cargo +nightly fuzz run pickle -- -max_total_time=600 -max_len=65536
	mkdir -p fuzz/corpus/oom_log fuzz/corpus/memory_dump && cp fixtures/*oom*.log fuzz/corpus/oom_log/ && cp fixtures/*.memorydump.pb fuzz/corpus/memory_dump/
	cd fuzz && cargo +nightly fuzz run oom_log -- -max_total_time=600 -max_len=4096
	cd fuzz && cargo +nightly fuzz run memory_dump -- -max_total_time=600 -max_len=16384

fmt:
	cargo fmt

# A virtual environment inside the tree. On Debian its module is a package of its own.
$(STAMP): tests/python/requirements.txt
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update -q && apt-get install -y -q python3-venv; }
	$(PYTHON) -m venv $(VENV)
	$(PIP_ENV) $(VENV)/bin/python -m pip install -q -r tests/python/requirements.txt
	touch $@

$(OLDER)/.installed: Makefile
	$(PYTHON) -m venv $(OLDER)
	$(PIP_ENV) $(OLDER)/bin/python -m pip install -q 'tensorflow-cpu~=2.15.0' 'numpy<2' 'maturin>=1.16,<2' 'pytest>=8'
	touch $@

clean:
	rm -rf $(VENV) $(OLDER) target benches/out .pytest_cache
