#!/bin/sh
# Prints manifests for kubectl apply: the custom resources and the controller of the external-snapshotter, in the
# version of csi/go.mod.
set -eu
cd "$(dirname "$0")/csi"
go mod download github.com/kubernetes-csi/external-snapshotter/v8 github.com/kubernetes-csi/external-snapshotter/client/v8
snapshotter=$(go list -m -f '{{.Dir}}' github.com/kubernetes-csi/external-snapshotter/v8)
kubectl kustomize "$(go list -m -f '{{.Dir}}' github.com/kubernetes-csi/external-snapshotter/client/v8)/config/crd"
echo ---
kubectl kustomize "$snapshotter/deploy/kubernetes/snapshot-controller" | sed "s#snapshot-controller:v.*#snapshot-controller:${snapshotter#*@}#"
