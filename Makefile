# The commands of this project. Each installs what it needs by itself.
#
#   make demo    build, install TensorFlow, train a small Keras model under `vramline run`, print the report
#   make test    the everyday suite: formatting, lints, Rust and Python tests
#   make test-integrations   tests with heavy packages, in an environment of their own
#   make dist    the wheel and the source archive of a release, into dist/, and the crates (RELEASING.md)
#   make test-dist   make dist, then installs the wheel and uses it
#   make bench   time and memory against xprof on a large trace made here; a large log; what a recording costs; replay
#   make docs    run the commands that README.md and docs/ show, and rewrite their outputs
#   make proof   the long tables, written into docs/proof with versions and date, and outputs of commands that train
#   make gpu-proof   the ledger on a real GPU, written into docs/proof/gpu-proof.md (vramline installed there, PyTorch, JAX)
#   make gpu-owners  owners of PyTorch's memory on a real GPU, compared with the objects of its jobs; JAX too; memory that runs out late
#   make gpu-beside  memory beside the pool by name, on a real GPU (vramline installed there, PyTorch, JAX, CuPy)
#   make gpu-ranks   two ranks on one real GPU, their peaks compared with torch.cuda (vramline installed there, PyTorch)
#   make gpu-trainers  the trainers' callbacks on a real GPU, compared with torch.cuda (vramline installed there, PyTorch, trainers)
#   make fuzz    ten minutes of fuzzing each reader (needs a nightly toolchain and cargo-fuzz)
#   make doc     the manual of the Rust library, as its users see it: target/doc/vramline/index.html
#   make web     the script of the report page, from web/src into crates/vramline-cli/web (needs Node; what is there is kept in git)
#   make screenshots   the pictures of the README and the guides (docs/images; installs JupyterLab)
#   make fmt     format everything
#
# Times of these, and where they go: CONTRIBUTING.md.

PYTHON ?= python3
VENV := .venv
OLDER := .venv-2.15
INTEGRATIONS := .venv-integrations
RELEASE := .venv-release
PROMETHEUS := $(abspath target/prometheus/usr/bin)
INSTALL := -m pip install -q --disable-pip-version-check

# The package brings the binary along: what the tests run is what users install.
BINARY := $(VENV)/bin/vramline
export VRAMLINE_BIN := $(abspath $(BINARY))

.PHONY: all demo build package optimized older tools test lint lint-rust lint-python compile-tests test-rust test-python test-integrations prometheus \
  dist test-dist \
  doc docs web browser java screenshots bench proof proof-trainers gpu-proof gpu-owners gpu-beside gpu-ranks gpu-trainers fuzz fmt clean

all: build

# One command for library and binary: apart, cargo would compile what they share twice. The library that is preloaded shares nothing.
build: tools
	cargo build --release --locked -p vramline-cli -p vramline-py
	cargo build --profile interposer --locked -p vramline-driver

# A linker is the one thing that a Rust toolchain may lack.
tools:
	@command -v cc >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update -q && apt-get install -y -q gcc libc6-dev; }

# TensorFlow is downloaded while cargo compiles.
demo:
	@$(MAKE) -j2 --no-print-directory build $(VENV)/.demo
	@$(MAKE) --no-print-directory package
	$(BINARY) demo -o target/demo.vram

# On a fresh machine packages and the browser are downloaded while cargo compiles. With warm caches both have nothing to do.
test:
	@$(MAKE) -j2 --no-print-directory compile-tests browser
	@$(MAKE) --no-print-directory lint-python test-rust test-python

compile-tests: lint-rust build
	cargo test --release --workspace --locked --no-run

lint: lint-rust lint-python

# In the profile that everything is built with: it shares what runs at compile time.
lint-rust: tools
	cargo fmt --check
	cargo clippy --release --workspace --all-targets --locked -- -D warnings
	cargo clippy --release -p vramline --no-default-features --lib --examples --locked -- -D warnings
	for feature in driver internals recording; do cargo check -q --release -p vramline --features $$feature --locked || exit 1; done
	RUSTDOCFLAGS='-D warnings' cargo doc -q --release -p vramline-cli --bin vramline --no-deps --locked
	RUSTDOCFLAGS='-D warnings' cargo doc -q --release --workspace --no-deps --locked
	@$(MAKE) --no-print-directory doc
	$(PYTHON) tests/rustdoc/public_items.py $${CARGO_TARGET_DIR:-target}/doc/vramline --check tests/rustdoc/public_items.txt

# Without the feature `internals`, which the whole workspace has on. It is the last to write its pages.
doc:
	RUSTDOCFLAGS='-D warnings' cargo doc -q --release -p vramline --features recording,driver --no-deps --locked

lint-python: $(VENV)/.tests
	$(VENV)/bin/ruff check
	$(VENV)/bin/mypy

# Then the library as others build it, without features: its own tests, and what its manual shows.
test-rust: tools
	cargo test --release --workspace --locked
	cargo test --release -p vramline --lib --locked
	cargo test --release -p vramline --doc --locked

# Always installed anew: cargo does only what has changed.
package: tools $(VENV)/.demo
	$(VENV)/bin/python $(INSTALL) --no-deps --force-reinstall --no-build-isolation .

# With the optimisation of a release, for what is measured.
optimized: tools $(VENV)/.tests
	VRAMLINE_BUILD=optimized $(VENV)/bin/python $(INSTALL) --no-deps --force-reinstall --no-build-isolation .

# Vramline is built without Node: this is for those who change the page.
web:
	cd web && npm ci --no-audit --no-fund && npx tsc --noEmit && npm run --silent build

# For the tests of the page. Debian's where that can be had, else Playwright's own; without either these tests say so and are skipped.
browser: $(VENV)/.tests
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update -q && apt-get install -y -q chromium fonts-dejavu-core; } \
	  || $(VENV)/bin/python -m playwright install chromium || echo "no browser: the page is not tested"
	@command -v npm >/dev/null && [ ! -d web/node_modules/esbuild ] && (cd web && npm ci --no-audit --no-fund --silent) || true

test-python: package browser
	$(VENV)/bin/python -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder tests/python

# For packages that are large or take long to start. Each test there says why it is not in the everyday suite.
test-integrations: build prometheus java $(INTEGRATIONS)/.installed
	$(INTEGRATIONS)/bin/python $(INSTALL) --no-deps --force-reinstall --no-build-isolation .
	PATH="$$PATH:$(PROMETHEUS)" VRAMLINE_BIN=$(abspath $(INTEGRATIONS))/bin/vramline \
	  $(INTEGRATIONS)/bin/python -m pytest -q tests/integrations

# For the test of the exporter, which is skipped without it. Debian's package is unpacked, not installed: that would start a server.
prometheus:
	@command -v promtool >/dev/null || [ -x $(PROMETHEUS)/promtool ] || { mkdir -p target/prometheus && cd target/prometheus \
	  && { apt-get download -q prometheus || { [ "$$(id -u)" = 0 ] && apt-get update -q && apt-get download -q prometheus; }; } \
	  && dpkg-deb -x prometheus_*.deb .; } || echo "no Prometheus: the exporter is not tested with it"

# For Spark. Without it the tests of Spark say so and are skipped.
java:
	@command -v java >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update -q && apt-get install -y -q openjdk-17-jre-headless; } \
	  || echo "no java: Spark is not tested"

# The wheel is made from the source archive, which so is known to build. Each crate that others may use is packaged and built from
# its package, into target/package.
dist: tools $(RELEASE)/.installed
	rm -rf dist
	PATH="$(abspath $(RELEASE))/bin:$$PATH" VRAMLINE_BUILD=dist CARGO_TARGET_DIR=$(abspath target) \
	  $(RELEASE)/bin/python -m build --no-isolation --outdir dist
	cargo package --locked --allow-dirty -p vramline-derive -p vramline -p vramline-cli

test-dist: dist
	@command -v debootstrap >/dev/null || [ "$$(id -u)" != 0 ] || { apt-get update -q && apt-get install -y -q debootstrap; } || true
	$(RELEASE)/bin/python -m pytest -q tests/dist

# What trains a model is left to `make proof`.
docs: build
	VRAMLINE_BIN= $(PYTHON) docs/outputs.py

# Each is made by a script, from the demo.
screenshots: package browser
	$(VENV)/bin/python $(INSTALL) jupyterlab
	for script in docs/screenshots/*.py; do $(VENV)/bin/python $$script || exit 1; done

bench: optimized
	$(VENV)/bin/python benches/against_xprof.py
	$(VENV)/bin/python benches/against_pickle.py
	$(VENV)/bin/python benches/oom_log.py
	$(VENV)/bin/python benches/recording_cost.py
	$(VENV)/bin/python benches/page.py
	cargo run --profile dist --locked -p vramline --features internals --example replay_speed -- fixtures/tf221_cpu_cnn_from_start.xplane.pb
	cargo run --profile dist --locked -p vramline --features internals --example replay_speed -- fixtures/torch2110_h200_resnet50_b64.snapshot.pickle.gz

proof: optimized
	cargo test --release --workspace --locked --test it -- --ignored every_cut_and_every_bit
	$(VENV)/bin/python benches/against_xprof.py --write docs/proof/benchmarks.md
	$(VENV)/bin/python benches/against_pickle.py --write docs/proof/benchmarks.md
	$(VENV)/bin/python benches/page.py --write docs/proof/benchmarks.md
	$(VENV)/bin/python benches/ranks.py --write docs/proof/ranks.md
	$(VENV)/bin/python benches/recording_cost.py --write docs/proof/cost.md
	$(VENV)/bin/python benches/dataset.py --write docs/proof/dataset.md
	$(VENV)/bin/python benches/layers.py --write docs/proof/layers.md
	$(VENV)/bin/python benches/kill_nine.py
	$(VENV)/bin/python benches/clean_runs.py
	$(VENV)/bin/python benches/what_if.py --write docs/proof/what-if.md
	$(VENV)/bin/python benches/accuracy.py gather
	$(VENV)/bin/python benches/accuracy.py compare --write docs/proof/accuracy.md
	$(VENV)/bin/python benches/sure.py gather --onednn 1
	$(VENV)/bin/python benches/sure.py gather --onednn 0
	$(VENV)/bin/python benches/sure.py compare --write docs/proof/sure.md
	$(VENV)/bin/python benches/accuracy_gpu.py --write docs/proof/accuracy-gpu.md
	$(VENV)/bin/python benches/accuracy_held_out.py --write docs/proof/accuracy-held-out.md
	$(VENV)/bin/python benches/fixes.py --write docs/proof/accuracy-fixes.md
	$(VENV)/bin/python docs/outputs.py --trains
	$(MAKE) older
	$(MAKE) proof-trainers

# With the trainers themselves, which are in the environment of the integrations.
proof-trainers: $(INTEGRATIONS)/.installed
	VRAMLINE_BUILD=optimized $(INTEGRATIONS)/bin/python $(INSTALL) --no-deps --force-reinstall --no-build-isolation .
	$(INTEGRATIONS)/bin/python benches/trainer_cost.py --write docs/proof/cost-trainers.md

# On a machine with a GPU, PyTorch and JAX; needs no network there once the package is installed.
gpu-proof:
	$(PYTHON) tests/gpu/driver.py benches/out/driver
	$(PYTHON) tests/gpu/proof.py benches/out/gpu --write docs/proof/gpu-proof.md --measured crates/vramline/src/ledger/measured.json

# On a machine with a GPU and PyTorch; with transformers and Lightning for their jobs.
gpu-owners:
	$(PYTHON) tests/gpu/owners.py benches/out/owners
	$(PYTHON) tests/gpu/jax_owners.py benches/out/jax-owners
	$(PYTHON) tests/gpu/runs_out.py benches/out/runs-out

# On a machine with a GPU. Each job that its packages allow.
gpu-beside:
	$(PYTHON) tests/gpu/beside.py benches/out/beside --all
	$(PYTHON) tests/gpu/driver_cost.py benches/out/driver-cost --write docs/proof/beside.md
	$(PYTHON) tests/gpu/soak.py benches/out/soak --minutes 10

# On a machine with a GPU and PyTorch.
gpu-ranks:
	$(PYTHON) tests/gpu/ranks.py benches/out/ranks

# On a machine with a GPU, and transformers, Lightning or accelerate. Writes benches/out/trainers/trainers.json too.
gpu-trainers:
	$(PYTHON) tests/gpu/trainers.py benches/out/trainers --write docs/proof/cost-trainers.md

# The oldest TensorFlow that is supported, with Keras 2. It needs Python 3.11 or older.
older: package $(OLDER)/.installed
	$(OLDER)/bin/python $(INSTALL) --no-deps --force-reinstall --no-build-isolation .
	VRAMLINE_BIN=$(abspath $(OLDER))/bin/vramline $(OLDER)/bin/python -m pytest -q tests/python/test_run.py tests/python/test_callback.py tests/python/test_api.py

fuzz:
	cd fuzz && cargo +nightly fuzz run xplane -- -max_total_time=600 -max_len=65536
	mkdir -p fuzz/corpus/pprof fuzz/corpus/hlo
	gzip -dc fixtures/*.memory.prof > fuzz/corpus/pprof/jax && cp fixtures/*.hlo.pb fuzz/corpus/hlo/
	cd fuzz && cargo +nightly fuzz run pprof -- -max_total_time=600 -max_len=65536
	cd fuzz && cargo +nightly fuzz run hlo -- -max_total_time=600 -max_len=65536
	mkdir -p fuzz/corpus/recording && cp fixtures/*.vram/*.arrows fuzz/corpus/recording/
	cd fuzz && cargo +nightly fuzz run recording -- -max_total_time=600 -max_len=16384
	cd fuzz && cargo +nightly fuzz run driver_calls -- -max_total_time=600 -max_len=4096
	mkdir -p fuzz/corpus/pickle && for file in fixtures/torch/*.pickle.gz; do gunzip -c $$file > fuzz/corpus/pickle/$$(basename $$file .gz); done
	cd fuzz && cargo +nightly fuzz run pickle -- -max_total_time=600 -max_len=65536
	mkdir -p fuzz/corpus/oom_log fuzz/corpus/memory_dump && cp fixtures/*oom*.log fuzz/corpus/oom_log/ && cp fixtures/*.memorydump.pb fuzz/corpus/memory_dump/
	cd fuzz && cargo +nightly fuzz run oom_log -- -max_total_time=600 -max_len=4096
	cd fuzz && cargo +nightly fuzz run memory_dump -- -max_total_time=600 -max_len=16384

fmt:
	cargo fmt

# Virtual environments inside the tree. On Debian the module for them is a package of its own.
define new-environment
$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update -q && apt-get install -y -q python3-venv; }
$(PYTHON) -m venv $(@D)
endef

$(VENV)/.demo: tests/python/demo.txt
	$(new-environment)
	$(VENV)/bin/python $(INSTALL) -r $<
	touch $@

$(VENV)/.tests: tests/python/requirements.txt $(VENV)/.demo
	$(VENV)/bin/python $(INSTALL) -r $<
	touch $@

$(OLDER)/.installed: Makefile
	$(new-environment)
	$(OLDER)/bin/python $(INSTALL) 'tensorflow-cpu~=2.15.0' 'numpy<2' 'hatchling>=1.27' 'pytest>=8'
	touch $@

$(INTEGRATIONS)/.installed: tests/integrations/requirements.txt
	$(new-environment)
	$(INTEGRATIONS)/bin/python $(INSTALL) -r $<
	touch $@

$(RELEASE)/.installed: tests/dist/requirements.txt
	$(new-environment)
	$(RELEASE)/bin/python $(INSTALL) -r $<
	touch $@

clean:
	rm -rf $(VENV) $(OLDER) $(INTEGRATIONS) $(RELEASE) target dist benches/out .pytest_cache
