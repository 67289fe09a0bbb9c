// The modules of operators whose CustomResourceDefinitions TestDefinitionsOfOperators (apiserver) installs. Nothing of
// them is compiled.
module monopod/testdata/operators

go 1.24

require (
	github.com/argoproj/argo-cd/v3 v3.2.0
	github.com/cert-manager/cert-manager v1.19.1
	github.com/fluxcd/helm-controller v1.4.3
	github.com/fluxcd/kustomize-controller v1.7.2
	github.com/fluxcd/source-controller v1.7.3
	github.com/prometheus-operator/prometheus-operator v0.75.2
	sigs.k8s.io/gateway-api v1.4.0
)
