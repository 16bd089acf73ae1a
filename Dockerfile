# The image of controller and agents:  docker build -t moor.dev/moor:0.1.0 .
# The image of the loop driver:        docker build -t moor.dev/moor-loop-driver:0.1.0 --target loop-driver .
# (`make image` builds both without a container engine.)

FROM rust:1-bookworm AS build
WORKDIR /src
COPY Cargo.toml Cargo.lock build.rs ./
COPY proto proto
COPY src src
# Compiled crates are kept between builds; the binary is copied out, for the cache is not part of the image.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --bin moor && cp target/release/moor /usr/local/bin/moor

FROM debian:bookworm-slim AS program
COPY --from=build /usr/local/bin/moor /usr/local/bin/moor
LABEL org.opencontainers.image.title="moor" \
      org.opencontainers.image.description="A CSI orchestrator for Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0"
# Agents and drivers run as root by the chart's word; everything else does not.
USER 65532:65532
ENTRYPOINT ["moor"]

FROM program AS loop-driver
USER 0:0
# What it calls: mkfs, fsck and growing for ext4 and xfs, losetup, mount. Nobody else calls any program.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends e2fsprogs mount util-linux xfsprogs \
    && rm -rf /var/lib/apt/lists/*
USER 65532:65532

# The last one is what is built where none is named. Controller and agents call no program, so those that could write to a disk are
# not there to be misused; Debian's image has some of them. `make image` reads the names from here.
FROM program AS moor
USER 0:0
RUN rm -f /usr/sbin/mkfs* /usr/sbin/mke2fs /usr/sbin/fsck* /usr/sbin/e2fsck /usr/sbin/resize2fs /usr/sbin/tune2fs \
    /usr/sbin/debugfs /usr/sbin/dumpe2fs /usr/sbin/xfs_* /usr/sbin/losetup /usr/bin/sqlite3
USER 65532:65532
