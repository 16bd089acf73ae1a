# What each target does: `make help`. The work is in e2e/cluster (Python, standard library only).

PYTHON ?= python3
CARGO ?= cargo
NODES ?=
SEED ?=
MINUTES ?= 10
VOLUMES ?= 1000
HELM_ARGS ?=
DRIVER ?=
BENCH_ARGS ?=
COMPARE ?=
FOCUS ?=
export PYTHONDONTWRITEBYTECODE = 1

harness = $(PYTHON) -m e2e.cluster

.PHONY: bench bench-builds bench-pods flame-graph heap-profile help up down install image demo check rig test suite sweep lag \
	soak print-bin e2e-storage

help:
	@echo 'make demo       start a cluster, install moor, and show what it does (first run: about 20 min, then 1)'
	@echo 'make up         start a test cluster of real Kubernetes parts; NODES=2'
	@echo 'make install    build moor and install its chart there; HELM_ARGS="--set ..."'
	@echo 'make down       remove the test cluster and all traces of it'
	@echo 'make check      format, lints, unit tests, model, chart: the fast loop, without a cluster'
	@echo 'make rig        real moor processes on a real API server: crash sweep, fault matrix, node loss and more'
	@echo 'make suite      the cases on a real cluster'
	@echo 'make test       everything, the cluster suite included; of what sweeps a space a short form'
	@echo 'make sweep      the whole sweeps, every rig case under lagging watches, a long soak: some hours'
	@echo 'make soak       random work and crashes on a test cluster, then volumes under faults; SEED=number MINUTES=10 VOLUMES=1000'
	@echo 'make e2e-storage  Kubernetes own storage tests on the loop driver, about half an hour; DRIVER=definition.yaml FOCUS=regex'
	@echo 'make bench      what Volumes and claims take, of moor and beside it of a bare client; COMPARE=<git ref> BENCH_ARGS=--help'
	@echo 'make bench-pods how fast Pods start: without a volume, with one by moor, and by kubelet alone'
	@echo 'make flame-graph   where the time of the controller and of an agent goes while they make 1,000 claims: target/profiles'
	@echo 'make heap-profile  who has their memory meanwhile'
	@echo 'make image      build the container image, print the path of its archive'
	@echo 'make print-bin  print the folder of kubectl, helm, kube-apiserver and the other built programs'
	@echo
	@echo 'With KUBECONFIG set, install and demo, and e2e-storage with DRIVER, use that cluster instead of starting one.'

up:
	@$(harness) up --nodes="$(NODES)"

down:
	@$(harness) down

install:
	@$(harness) install -- $(HELM_ARGS)

image:
	@$(harness) image

demo:
	@$(harness) demo --nodes="$(NODES)" -- $(HELM_ARGS)

print-bin:
	@$(harness) print-bin

check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --all-targets --locked -- -D warnings
	MOOR_RIG=none $(CARGO) test --locked
	@$(harness) check-chart
	@if command -v cargo-deny >/dev/null; then $(CARGO) deny check licenses bans sources; \
	else echo 'cargo-deny is not installed, so licences and sources were not checked: cargo install cargo-deny'; fi

# What the tests of tests/rig run moor's processes on, and nothing more of a cluster.
rig_parts = certificates etcd kube-apiserver helm csi-sanity
# The longest first. They mostly wait, so a few run side by side. The start of an API server takes both cores for some seconds, so the
# modules share a dozen of them.
longest = crash_sweep.every_crash_point crash_sweep.every_crash_point_in_company fault_matrix campaign
modules = $(filter-out main $(basename $(longest)),$(sort $(notdir $(basename $(wildcard tests/rig_cases/*.rs)))))
shares = 1 2 3 4 5 6 7 8 9 10 11 12
share = $(or $(shell printf '%s\n' $(modules) | awk 'NR % $(words $(shares)) == $1 % $(words $(shares))'),$(error share $1 has nothing))
rigs = $(longest) $(shares)

# all: the whole of what has a short form. A sweep asks for it.
EXTENT ?= short
# The watches that `make lag` holds back, one rule a run: who, which kind, by how many milliseconds (tests/rig/lag.rs). One
# kind alone shows what takes it for granted that two watches keep step, which all together do.
LAGS ?= mirror:*:400 mirror:*:1000 controller:*:700 controller:plugininstances:1000 agent:*:1500 *:*:300

# A name with a dot is one case, a number is all cases of a share of the modules, and another name is all of a module.
rig_cases = $(if $(findstring .,$1),--exact $(subst .,::,$1),$(addsuffix ::,$(if $(filter $1,$(shares)),$(call share,$1),$1)))

rig_targets = $(patsubst %,rig-%,$(rigs) $(modules))
.PHONY: $(rig_targets)

rig:
	@$(harness) parts $(rig_parts)
	$(CARGO) test --locked --no-run
	@$(MAKE) --no-print-directory -j3 --keep-going --output-sync=target $(rigs:%=rig-%)

$(rig_targets): rig-%:
	MOOR_RIG=$(EXTENT) $(CARGO) test --locked --test rig -- $(call rig_cases,$*)

# What the suite runs beside the cluster's programs: Kubernetes' storage tests, and what takes VolumeSnapshots.
suite_parts = e2e.test agnhost ginkgo snapshot-controller

# The slow programs first, so that a fresh machine shows at once what takes its time. A release is made by one thread for most of
# the time, so the checks go on beside it. The rig and the suite mostly wait, so they run side by side when nothing is left to be
# built; each ends with a summary of its own.
test:
	@$(harness) parts
	@$(harness) parts $(suite_parts)
	@$(MAKE) --no-print-directory -j2 image check
	@$(MAKE) --no-print-directory -j2 rig suite

suite:
	@if [ -e e2e/suite/__main__.py ]; then $(PYTHON) -m e2e.suite; else echo 'e2e/suite is not there yet: no cluster suite was run'; fi

# Every case of the rig under each rule. A case that fails leans on chance, or has found something.
lag:
	@$(harness) parts $(rig_parts)
	$(CARGO) test --locked --no-run
	@set -e; for rule in $(foreach rule,$(LAGS),'$(rule)'); do \
		echo "MOOR_RIG_LAG=$$rule"; \
		MOOR_RIG_LAG="$$rule" $(MAKE) --no-print-directory -j3 --keep-going --output-sync=target $(rigs:%=rig-%); \
	done

# What takes too long for every change, and is run before a change of the protocol is called done.
sweep:
	$(MAKE) --no-print-directory check
	$(MAKE) --no-print-directory rig EXTENT=all
	$(MAKE) --no-print-directory lag
	$(MAKE) --no-print-directory soak MINUTES=30 VOLUMES=1000

soak:
	@$(PYTHON) -m e2e.suite.soak $(if $(SEED),--seed="$(SEED)") --minutes="$(MINUTES)" --volumes="$(VOLUMES)"

# On the loop driver in a cluster of its own; with DRIVER on that driver, where it is installed.
e2e-storage:
	@$(PYTHON) -m e2e.storage --driver="$(DRIVER)" --focus="$(FOCUS)"

# With COMPARE the moor of that commit and this one are measured in turns. Both are built alike, without what tests need, and
# each has the chart that belongs to it.
commit = $(if $(COMPARE),$(shell git rev-parse --short --verify "$(COMPARE)^{commit}"))
compared = target/compare/$(commit)
build_moor = $(CARGO) build --release --locked --bin moor --target-dir target/compare/build
builds = $(if $(COMPARE),--build '$(commit)=$(compared).moor:$(compared)/charts/moor' \
	--build here=target/compare/here.moor:charts/moor)

pods = $(if $(COMPARE),,$(or $(PODS),target/bench-pods.json))

# With PODS the figures of an earlier `make bench-pods` are in that file.
bench:
	@$(harness) parts certificates etcd kube-apiserver helm
	@$(if $(COMPARE),$(MAKE) --no-print-directory bench-builds)
	@$(if $(COMPARE)$(PODS),,$(MAKE) --no-print-directory bench-pods)
	$(CARGO) bench --locked --bench scale -- $(builds) $(if $(pods),--pods '$(abspath $(pods))') $(BENCH_ARGS)

bench-builds:
	test -n "$(commit)"
	git worktree prune
	test -d "$(compared)" || git worktree add --detach "$(compared)" "$(commit)"
	$(build_moor) --manifest-path "$(compared)/Cargo.toml"
	cp target/compare/build/release/moor "$(compared).moor"
	$(build_moor)
	cp target/compare/build/release/moor target/compare/here.moor

# Of functions that keep a frame pointer the stacks are known without debug info. perf and heaptrack are Debian packages
# (linux-perf, heaptrack), which nothing else needs.
profiled = RUSTFLAGS='-C force-frame-pointers=yes' $(CARGO) bench --locked --bench scale --target-dir target/profiled -- \
	--sizes 1000 --existing 0 --rounds 1 --warm-ups 0 --writes 0

flame-graph:
	@$(harness) parts certificates etcd kube-apiserver helm
	$(profiled) --profile cpu $(BENCH_ARGS)

heap-profile:
	@$(harness) parts certificates etcd kube-apiserver helm
	$(profiled) --profile heap $(BENCH_ARGS)

bench-pods:
	@$(PYTHON) -m e2e.bench
