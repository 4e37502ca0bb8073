# The Provisor image: one binary, glibc, libudev, no shell.
#   docker build -t provisor/provisor:dev .
# tests/cluster/image.sh reads the last stage of this file to make the same image on a machine without a container engine.
FROM rust:1.95-bookworm AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends libudev-dev pkg-config \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN cargo build --release --locked

FROM gcr.io/distroless/cc-debian12
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="provisor" \
      org.opencontainers.image.description="A static provisioner for local disks on Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
# The one library that the base does not have: the link by its name and the file it points to, whatever the architecture and release.
COPY --from=build /usr/lib/*-linux-gnu/libudev.so.1* /usr/lib/
COPY LICENSE /usr/share/doc/provisor/
COPY --from=build /src/target/release/provisor /provisor
EXPOSE 8080
ENTRYPOINT ["/provisor"]
CMD ["run"]
