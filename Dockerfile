# Monopod in a container, for tests on a machine with Docker: docs/ci.md. Its build needs bin/monopod, from make build.
FROM scratch
COPY bin/monopod /monopod
VOLUME /var/lib/monopod
EXPOSE 6443
ENTRYPOINT ["/monopod"]
CMD ["serve", "--listen=0.0.0.0:6443"]
