#!/bin/sh
# Builds unmodified third-party programs from their Go modules and runs them against bin/monopod, with the manifests in
# the modules. Each program is a process with the kubeconfig of its service account; sample-apiserver and metrics-server
# are behind Services without a selector. go.mod in this folder contains the versions, except for kube-state-metrics
# (state/go.mod) and prometheus-operator (prometheus/go.mod), which need older libraries.
#
#   testdata/programs/run.sh [sample|metrics|state|prometheus]...
#
# It needs the programs that cluster.sh lists, and etcd.
set -eu
cd "$(dirname "$0")/../.."
here=testdata/programs
space=monopod-programs
subnet=10.78.0
. $here/cluster.sh
need etcd
compile $here k8s.io/sample-apiserver sigs.k8s.io/metrics-server/cmd/metrics-server
compile $here/state k8s.io/kube-state-metrics/v2
compile $here/prometheus github.com/prometheus-operator/prometheus-operator/cmd/operator
prepare
serve

# account NAMESPACE NAME: writes a kubeconfig for a service account and prints its path.
account() {
	file=$work/$2.kubeconfig
	cp "$KUBECONFIG" "$file"
	k --kubeconfig "$file" config set-credentials program --token="$(k create token -n "$1" "$2")" >/dev/null
	k --kubeconfig "$file" config set-context --current --user=program >/dev/null
	echo "$file"
}
# service NAMESPACE NAME PORT: creates a Service whose port https leads to the port of the server's address.
service() {
	k apply -f - <<-END
		apiVersion: v1
		kind: Service
		metadata: {name: $2, namespace: $1}
		spec: {ports: [{name: https, port: 443, targetPort: $3}]}
		---
		apiVersion: discovery.k8s.io/v1
		kind: EndpointSlice
		metadata: {name: $2, namespace: $1, labels: {kubernetes.io/service-name: $2}}
		addressType: IPv4
		ports: [{name: https, port: $3}]
		endpoints: [{addresses: ["$address"], conditions: {ready: true}}]
	END
}
sample() {
	module=$(folder k8s.io/sample-apiserver $here)/artifacts
	start etcd etcd --data-dir "$top/etcd" --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:0
	for part in ns sa rbac rbac-bind auth-delegator auth-reader apiservice; do
		k apply -f "$module/example/$part.yaml"
	done
	expect 'MissingEndpoints|ServiceNotFound' k get apiservice v1alpha1.wardle.example.com
	# Since Kubernetes 1.36 the program also watches these resources, which its role does not contain.
	k create clusterrole wardle-policies --verb=get,list,watch --resource=mutatingadmissionpolicies.admissionregistration.k8s.io,mutatingadmissionpolicybindings.admissionregistration.k8s.io
	k create clusterrolebinding wardle-policies --clusterrole=wardle-policies --serviceaccount=wardle:apiserver
	service wardle api 10360
	file=$(account wardle apiserver)
	start sample-apiserver "$work/bin/sample-apiserver" --etcd-servers=http://127.0.0.1:2379 --secure-port=10360 --cert-dir="$work/sample" \
		--kubeconfig="$file" --authentication-kubeconfig="$file" --authorization-kubeconfig="$file"
	program=$started
	k wait --for=condition=Available --timeout=90s apiservice/v1alpha1.wardle.example.com
	expect 'flunders +.*true +Flunder' k api-resources --api-group=wardle.example.com
	expect '"wardle.example.com"' k get --raw /apis
	start watch kubectl get -w flunders -o name
	expect 'created' k create -f "$module/flunders/01-flunder.yaml"
	k apply --server-side --force-conflicts -f "$module/flunders/01-flunder.yaml"
	expect 'my-first-flunder' k get flunders
	expect 'my-first-flunder' cat "$work/watch.log"
	expect 'sample-label=true' k get flunders --show-labels
	expect 'reference' k explain flunder.spec
	expect 'wardle.*Flunder"' k get --raw /openapi/v2
	expect 'wardle.example.com/v1alpha1' k get --raw /openapi/v3
	k create configmap owner
	uid=$(k get configmap owner -o 'jsonpath={.metadata.uid}')
	k patch flunder my-first-flunder --type=merge -p "{\"metadata\":{\"ownerReferences\":[{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"name\":\"owner\",\"uid\":\"$uid\"}]}}"
	k delete configmap owner
	expect 'No resources found' k get flunders
	k create namespace flunders
	k apply -n flunders -f "$module/flunders/01-flunder.yaml"
	k delete namespace flunders --timeout=90s
	k create quota flunders --hard=count/flunders.wardle.example.com=1
	k apply -f "$module/flunders/01-flunder.yaml"
	expect 'count/flunders.wardle.example.com: 1/1' k get quota flunders
	k delete quota flunders
	kill "$program"
	expect 'False \(' k get apiservice v1alpha1.wardle.example.com
	expect 'default' k get namespaces
	k delete -f "$module/example/apiservice.yaml"
	expect "the server doesn't have a resource type|could not find the requested resource" sh -c 'nsenter --net="$1" kubectl get flunders 2>&1 || true' - "$net"
}

metrics() {
	module=$(folder sigs.k8s.io/metrics-server $here)/manifests/base
	k create deployment web --image=monopod.local/web:1 --replicas=2 -- /web serve
	expect '^web-.* [0-9]+m +[0-9]+Mi' k top pods
	k apply -f "$module/rbac.yaml"
	service kube-system metrics-server 10370
	file=$(account kube-system metrics-server)
	start metrics-server "$work/bin/metrics-server" --secure-port=10370 --cert-dir="$work/metrics" --kubelet-use-node-status-port --metric-resolution=15s \
		--kubelet-preferred-address-types=InternalIP --kubeconfig="$file" --authentication-kubeconfig="$file" --authorization-kubeconfig="$file"
	k apply -f "$module/apiservice.yaml"
	k wait --for=condition=Available --timeout=90s apiservice/v1beta1.metrics.k8s.io
	token=$(cat "$data/pki/admin.token")
	expect '^node1 +[0-9]+m' k top nodes
	expect '^web-.* [0-9]+m +[0-9]+Mi' k top pods
	expect 'apiserver_request_total.*resource="pods".*[1-9]' inside curl -sk -H "Authorization: Bearer $token" "https://$address:10370/metrics"
	expect 'PodMetrics' k explain podmetrics
	# Autoscalers read the metrics of metrics-server.
	k set resources deployment web --requests=cpu=10m,memory=8Mi
	k apply -f - <<-END
		apiVersion: autoscaling/v2
		kind: HorizontalPodAutoscaler
		metadata: {name: web}
		spec:
		  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
		  maxReplicas: 2
		  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 90}}}]
	END
	expect '^[0-9]+$' k get hpa web -o 'jsonpath={.status.currentMetrics[0].resource.current.averageUtilization}'
	kill "$started"
	expect 'False \(' k get apiservice v1beta1.metrics.k8s.io
	expect 'FailedGetResourceMetric' k get hpa web -o 'jsonpath={.status.conditions[?(@.type=="ScalingActive")].reason}'
	k delete -f "$module/apiservice.yaml"
	expect '^web-.* [0-9]+m +[0-9]+Mi' k top pods
	expect 'ValidMetricFound' k get hpa web -o 'jsonpath={.status.conditions[?(@.type=="ScalingActive")].reason}'
	k delete deployment web
	k delete hpa web
}

state() {
	module=$(folder k8s.io/kube-state-metrics/v2 $here/state)/examples/standard
	k create deployment shop --image=monopod.local/web:1 --replicas=2 -- /web serve
	for part in service-account cluster-role cluster-role-binding; do
		k apply -f "$module/$part.yaml"
	done
	file=$(account kube-system kube-state-metrics)
	start kube-state-metrics "$work/bin/kube-state-metrics" --kubeconfig="$file" --host="$address" --port=10380 --telemetry-port=10381
	expect 'kube_deployment_status_replicas_available\{namespace="default",deployment="shop"\} 2' inside curl -s "http://$address:10380/metrics"
	expect 'kube_pod_status_phase\{namespace="default",pod="shop-.*phase="Running"\} 1' inside curl -s "http://$address:10380/metrics"
	expect 'kube_node_status_capacity' inside curl -s "http://$address:10380/metrics"
	expect '^0$' sh -c 'grep -cE "^[EWF][0-9]{4} " "$1" || true' - "$work/kube-state-metrics.log"
	k delete deployment shop
}

# prometheus runs prometheus-operator. It checks its permissions with access reviews before it starts its controllers,
# and it creates a StatefulSet for each Prometheus.
prometheus() {
	module=$(folder github.com/prometheus-operator/prometheus-operator $here/prometheus)/example
	k apply --server-side -f "$module/prometheus-operator-crd" # too large for the annotation of client-side apply
	for part in service-account cluster-role cluster-role-binding; do
		k apply -f "$module/rbac/prometheus-operator/prometheus-operator-$part.yaml"
	done
	k wait --for=condition=Established --timeout=90s crd/prometheuses.monitoring.coreos.com crd/thanosrulers.monitoring.coreos.com
	file=$(account default prometheus-operator)
	start prometheus-operator env KUBECONFIG="$file" "$work/bin/operator" --web.listen-address="$address:10390"
	for part in service-account cluster-role cluster-role-binding; do
		k apply -f "$module/rbac/prometheus/prometheus-$part.yaml"
	done
	k apply -f - <<-END
		apiVersion: monitoring.coreos.com/v1
		kind: Prometheus
		metadata: {name: small}
		spec: {serviceAccountName: prometheus, replicas: 1, serviceMonitorSelector: {}}
	END
	expect '^prometheus-small ' k get statefulset prometheus-small
	expect '^prometheus-small-0 ' k get pod prometheus-small-0
	# The operator follows a change by client-side apply.
	k apply -f - <<-END
		apiVersion: monitoring.coreos.com/v1
		kind: Prometheus
		metadata: {name: small}
		spec: {serviceAccountName: prometheus, replicas: 2, serviceMonitorSelector: {}}
	END
	expect '^2$' k get statefulset prometheus-small -o 'jsonpath={.spec.replicas}'
	expect '^2$' k get prometheus small -o 'jsonpath={.status.replicas}'
	expect '^0$' sh -c 'grep -ciE "missing permission|forbidden|level=error" "$1" || true' - "$work/prometheus-operator.log"
	k delete prometheus small
}

parts ${*:-sample metrics state prometheus}
