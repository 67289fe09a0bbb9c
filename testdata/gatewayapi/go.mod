module monopod/testdata/gatewayapi

go 1.26.6

require sigs.k8s.io/gateway-api v1.6.3
