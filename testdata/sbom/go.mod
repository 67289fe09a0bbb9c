module monopod/testdata/sbom

go 1.26.6

require github.com/CycloneDX/cyclonedx-go v0.12.0
