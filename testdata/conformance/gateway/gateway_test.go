// Package gateway runs the conformance tests of the Gateway API; see gateway.sh.
package gateway

import (
	"testing"

	"sigs.k8s.io/gateway-api/conformance"
	_ "sigs.k8s.io/gateway-api/conformance/echo-basic/grpcechoserver" // keeps its dependencies in go.sum
)

func TestConformance(t *testing.T) { conformance.RunConformance(t) }
