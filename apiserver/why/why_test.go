package why_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	binding "monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/crd"
	"monopod/apiserver/why"
	"monopod/apiserver/why/facts"
)

var now = time.Date(2026, 1, 1, 0, 10, 0, 0, time.UTC)

// situation is a state of the cluster. The first document of objects is the object to explain; the others are related
// objects. parsed sets a name, a UID and a namespace.
type situation struct {
	objects string
	log     string     // of the containers c and i of pod p
	absent  client.Ref // an object that does not exist
	closed  string     // a port of a pod that refuses connections
	want    string     // part of the sentence
	shows   string     // part of the evidence
	do      string     // part of the remedy; empty: there is none
}

const (
	onNode = "spec: {nodeName: box, containers: [{name: c, image: 'r/x:1'}]}"
	free   = "spec: {containers: [{name: c, image: 'r/x:1', resources: {requests: {cpu: '8'}}}]}"
	node   = "kind: Node\nmetadata: {name: box}\n" +
		"status: {allocatable: {cpu: '2', memory: 2Gi}, conditions: [{type: Ready, status: 'True'}]}"
	running = "status: {phase: Running, conditions: [{type: Ready, status: 'True'}], containerStatuses: [{name: c, " +
		"ready: true, state: {running: {}}}]}"
)

// waiting is a pod p on node box whose container waits.
func waiting(reason, message string) string {
	return fmt.Sprintf(
		"kind: Pod\n%s\nstatus: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: %s, message: %q}}}]}", onNode, reason, message)
}

// crashing is a pod whose container waits for its next start.
func crashing(end string) string {
	return fmt.Sprintf(
		"kind: Pod\n%s\nstatus: {phase: Running, containerStatuses: [{name: c, restartCount: 4, "+
			"state: {waiting: {reason: CrashLoopBackOff, message: back-off 1m20s restarting}}, "+
			"lastState: {terminated: {startedAt: '2026-01-01T00:08:00Z', finishedAt: '2026-01-01T00:09:00Z', %s}}}]}", onNode,
		end)
}

func pending(message string) string {
	return fmt.Sprintf(
		"kind: Pod\n%s\nstatus: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', "+
			"reason: Unschedulable, message: %q}]}\n---\n%s", free, message, node)
}

// event is an Event about the object p of a kind.
func event(kind, reason, message string) string {
	return fmt.Sprintf(
		"\n---\nkind: Event\ntype: Warning\nreason: %s\nmessage: %q\nlastTimestamp: '2026-01-01T00:09:30Z'\ncount: 3\n"+
			"involvedObject: {kind: %s, name: p, uid: %s-p, namespace: default}", reason, message, kind, kind)
}

// normal makes an event of the type Normal.
func normal(event string) string { return strings.Replace(event, "type: Warning", "type: Normal", 1) }

func starting(reason, message string) string {
	return "kind: Pod\n" + onNode +
		"\nstatus: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ContainerCreating}}}]}" +
		event("Pod", reason, message)
}

// restarted is a pod with a ConfigMap whose container ended with its node.
func restarted(end string) string {
	return fmt.Sprintf(
		"kind: Pod\nspec: {nodeName: box, volumes: [{name: v, configMap: {name: settings}}], containers: [{name: c, "+
			"image: x}]}\nstatus: {phase: Running, containerStatuses: [{name: c, state: {terminated: {%s}}}]}", end)
}

// named is a Service that selects pods of its name, at 10.96.0.7:5432.
func named(name string) string {
	return fmt.Sprintf(
		"\n---\nkind: Service\nmetadata: {name: %s}\nspec: {clusterIPs: [10.96.0.7], selector: {app: %s}, "+
			"ports: [{port: 5432}]}", name, name)
}

func failed(reason, message string) string {
	return fmt.Sprintf("kind: Pod\n%s\nstatus: {phase: Failed, reason: %s, message: %q}", onNode, reason, message)
}

// backup is an object of a custom kind that has been Ready since a time, with a warning at 00:09:30.
func backup(since string) string {
	return "apiVersion: acme.com/v1\nkind: Backup\nstatus: {conditions: [{type: Ready, status: 'True', reason: Done, " +
		"message: '', lastTransitionTime: '" + since + "'}]}" + event("Backup", "Failed", "no disk")
}

func situations() map[string]situation {
	deployment := "kind: Deployment\nmetadata: {generation: 1}\nspec: {replicas: 3, selector: {matchLabels: {a: b}}}\n" +
		"status: {observedGeneration: 1, replicas: 1, readyReplicas: 0, updatedReplicas: 1}\n---\nkind: ReplicaSet\n" +
		"metadata: {ownerReferences: [{controller: true, uid: Deployment-p, kind: Deployment, name: p}]}\n" +
		"spec: {replicas: 3}\n"
	ownedPod := func(pod string) string {
		return "\n---\n" +
			strings.Replace(pod, "kind: Pod\n",
				"kind: Pod\nmetadata: {labels: {a: b}, ownerReferences: [{controller: true, uid: ReplicaSet-p, "+
					"kind: ReplicaSet, name: p}]}\n", 1)
	}
	refused := func(message string) string { return deployment + event("ReplicaSet", "FailedCreate", message) }
	rollout := strings.NewReplacer("readyReplicas: 0", "readyReplicas: 3").Replace(deployment) +
		"\n---\nkind: ReplicaSet\nmetadata: {name: old, ownerReferences: [{controller: true, uid: Deployment-p, " +
		"kind: Deployment, name: p}]}\nspec: {replicas: 3}\nstatus: {replicas: 3, readyReplicas: 3}"
	netpol := func(spec string) string {
		return "\n---\nkind: NetworkPolicy\nmetadata: {name: shut}\nspec: {podSelector: {matchLabels: {app: web}}, " + spec +
			"}"
	}
	job := func(condition string) string {
		return "kind: Job\nspec: {backoffLimit: 2}\nstatus: {failed: 3, conditions: [" + condition + "]}"
	}
	service := "kind: Service\nspec: {selector: {app: web}, ports: [{port: 80, targetPort: http}]}"
	slice := "\n---\nkind: EndpointSlice\nmetadata: {labels: {kubernetes.io/service-name: p}}\n" +
		"endpoints: [{addresses: [10.0.0.1], conditions: {ready: true}}]"
	webPod := func(port, status string) string {
		return "\n---\nkind: Pod\nmetadata: {labels: {app: web}}\n" +
			"spec: {nodeName: box, containers: [{name: c, ports: [{name: " + port + ", containerPort: 8080}]}]}\n" + status
	}
	claim := func(class string) string {
		return "kind: PersistentVolumeClaim\nspec: {" + class + "}\nstatus: {phase: Pending}"
	}
	// A pod on node box with the claim data, bound to the volume vol of the driver d.csi.acme.com.
	driverPod := func(status, more string) string {
		return "kind: Pod\nspec: {nodeName: box, volumes: [{name: v, persistentVolumeClaim: {claimName: data}}], " +
			"containers: [{name: c, image: x}]}\n" + status +
			"\n---\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {volumeName: vol}\nstatus: {phase: Bound}" +
			"\n---\nkind: PersistentVolume\nmetadata: {name: vol}\nspec: {csi: {driver: d.csi.acme.com, volumeHandle: h}}" + more
	}
	creating := "status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ContainerCreating}}}]}"
	csiNode := func(driver string) string {
		return "\n---\nkind: CSINode\nmetadata: {name: box}\nspec: {drivers: [{name: " + driver + ", nodeID: box}]}"
	}
	installed := csiNode("d.csi.acme.com")
	driver := "\n---\nkind: CSIDriver\nmetadata: {name: d.csi.acme.com}"
	registrar := "\n---\nkind: Pod\nmetadata: {name: d-node}\n" +
		"spec: {nodeName: box, volumes: [{name: r, hostPath: {path: /var/lib/kubelet/plugins_registry/}}]}"
	provisioner := "\n---\nkind: Pod\nmetadata: {name: d-controller}\n" +
		"spec: {containers: [{name: csi-provisioner, image: 'r/sig-storage/csi-provisioner:v5'}]}\n" +
		"status: {conditions: [{type: Ready, status: '%s'}]}"
	attachment := func(rest string) string {
		return "\n---\nkind: VolumeAttachment\nmetadata: {name: " + binding.AttachmentName("d.csi.acme.com", "h", "box") +
			", creationTimestamp: '2026-01-01T00:07:00Z'" + rest
	}
	growing := func(rest string) string {
		return "kind: PersistentVolumeClaim\nspec: {volumeName: vol, resources: {requests: {storage: 5Gi}}}\n" +
			"status: {phase: Bound, capacity: {storage: 2Gi}" + rest + "}"
	}
	class := func(rest string) string { return "\n---\nkind: StorageClass\nmetadata: {name: s}\n" + rest }
	hpa := func(conditions string) string {
		return "kind: HorizontalPodAutoscaler\nspec: {scaleTargetRef: {kind: Deployment, name: web}}\n" +
			"status: {desiredReplicas: 5, conditions: [" + conditions + "]}"
	}
	ingress := "kind: Ingress\nspec: {ingressClassName: monopod, rules: [{http: {paths: [{path: /, pathType: Prefix, " +
		"backend: {service: {name: p, port: {number: 80}}}}]}}]}"
	ingressClass := "\n---\nkind: IngressClass\nmetadata: {name: monopod}\n"
	return map[string]situation{
		// Images.
		"image not found": {objects: waiting("ImagePullBackOff",
			`Back-off pulling image "r/x:1": ErrImagePull: rpc error: code = NotFound desc = failed to pull and unpack image `+
				`"r/x:1": r/x:1: not found`), want: `the image "r/x:1" cannot be pulled, because the registry does not have it`,
			do: "Correct the name"},
		"registry unauthorised": {objects: waiting("ErrImagePull",
			"failed to resolve reference: pull access denied, repository does not exist or may require authorization: "+
				"authorization failed: not found"), want: "refuses access", do: "imagePullSecrets"},
		"image offline": {objects: waiting("ErrImagePull", "dial tcp: lookup registry.example.com: no such host"),
			want: "name of the registry cannot be resolved", do: "images/ in the data folder"},
		"registry refused": {objects: waiting("ErrImagePull", "dial tcp 192.0.2.1:443: connect: connection refused"),
			want: "registry cannot be reached", do: "Check the network"},
		"registry without HTTPS": {objects: waiting("ErrImagePull", "http: server gave HTTP response to HTTPS client"),
			want: "speaks HTTP", do: "hosts.toml"},
		"registry's certificate": {objects: waiting("ErrImagePull",
			"tls: failed to verify certificate: x509: certificate signed by unknown authority"),
			want: "certificate of the registry is not trusted", do: "authority"},
		"too many pulls": {objects: waiting("ErrImagePull", "429 Too Many Requests - toomanyrequests: limit"),
			want: "limits the number of pulls", do: "mirror"},
		"other processor": {objects: waiting("ErrImagePull", "no match for platform in manifest: not found"),
			want: "not for this machine's processor", do: "built for"},
		"disk full on pull": {objects: waiting("ErrImagePull", "write /x: no space left on device"),
			want: "disk of the node is full", do: "Free space"},
		"only the back-off": {objects: waiting("ImagePullBackOff", "Back-off pulling image") + event("Pod", "Failed",
			"Failed to pull image \"r/x:1\": dial tcp: i/o timeout"), want: "cannot be reached",
			shows: "event Failed (30s ago, 3 times)", do: "network"},
		"never pull": {objects: waiting("ErrImageNeverPull", "not present"), want: "imagePullPolicy is Never",
			do: "IfNotPresent"},
		"image's name": {objects: waiting("InvalidImageName", "could not parse"), want: "not a valid name", do: "lower case"},
		"Always, image on the node": {objects: strings.Replace(waiting("ImagePullBackOff",
			"Back-off: dial tcp: lookup r: no such host"), "'r/x:1'", "'r/x', imagePullPolicy: Always", 1) +
			"\n---\nkind: Node\nmetadata: {name: box}\nstatus: {images: [{names: ['r/x:latest']}]}",
			want: `its imagePullPolicy Always asks the registry although the node has the image "r/x", ` +
				`and the name of the registry cannot be resolved.`, do: "imagePullPolicy: IfNotPresent"},
		// Ends of containers.
		"crash": {objects: crashing("exitCode: 3, reason: Error"), log: "start\npanic: no \x1b[31mdatabase\n",
			want: `crashes: it ends with exit code 3 after 60s; its last line is "panic: no [31mdatabase"`, shows: "restarts: 4",
			do: "kubectl logs p -c c --previous"},
		"crash, no log": {objects: crashing("exitCode: 3, message: goodbye"), want: `its last line is "goodbye"`, do: "Fix"},
		"ended well": {objects: crashing("exitCode: 0, reason: Completed"),
			want: "exit code 0 after 60s although it should keep running", do: "Job"},
		"signal": {objects: crashing("exitCode: 139, reason: Error"), want: "signal SIGSEGV (exit code 139)", do: "bug"},
		"killed": {objects: crashing("exitCode: 137, reason: Error"), want: "signal SIGKILL", do: "killed the process"},
		"OOM": {objects: strings.Replace(crashing("exitCode: 137, reason: OOMKilled"), "'r/x:1'",
			"'r/x:1', resources: {limits: {memory: 64Mi}}", 1),
			want: "uses too much memory (OOMKilled, exit code 137): its limit is 64Mi", do: "limits.memory"},
		"not executable":    {objects: crashing("exitCode: 126"), want: "exit code 126", do: "mode"},
		"command not found": {objects: crashing("exitCode: 127"), want: "exit code 127", do: "PATH"},
		"exec not found": {objects: crashing(
			`exitCode: 128, reason: StartError, message: 'exec: "no": executable file not found in $PATH'`),
			want: "the image has no program", do: "command and args"},
		"exec denied": {objects: waiting("RunContainerError", `exec: "/x": permission denied`),
			want: "permission denied", do: "executable"},
		"exec format": {objects: waiting("RunContainerError", `exec /x: exec format error`),
			want: "not a program for this processor", do: "#!"},
		"end not observed": {objects: crashing("exitCode: 137, reason: ContainerStatusUnknown"),
			want: "its end was not observed", do: "log"},
		"hook fails": {objects: waiting("PostStartHookError", "postStart hook: exit 4"),
			want: "postStart hook that fails", do: "postStart"},
		"init fails": {objects: "kind: Pod\nspec: {nodeName: box, initContainers: [{name: i, image: x}], " +
			"containers: [{name: c, image: x}]}\nstatus: {phase: Pending, initContainerStatuses: [{name: i, restartCount: 2, " +
			"state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 1}}}], " +
			"containerStatuses: [{name: c, state: {waiting: {reason: PodInitializing}}}]}",
			want: "Init container i of pod p crashes: it ends with exit code 1", do: "-c i"},
		"init runs": {objects: "kind: Pod\nspec: {nodeName: box, initContainers: [{name: i, image: x}], " +
			"containers: [{name: c, image: x}]}\nstatus: {phase: Pending, initContainerStatuses: [{name: i, " +
			"state: {running: {startedAt: '2026-01-01T00:08:00Z'}}}]}",
			want: "Init container i of pod p has been running for 2m", do: "Wait"},
		"failed pod": {objects: "kind: Pod\nspec: {nodeName: box, restartPolicy: Never, containers: [{name: c, " +
			"image: x}]}\nstatus: {phase: Failed, containerStatuses: [{name: c, state: {terminated: {exitCode: 2, " +
			"reason: Error}}}]}", want: "Container c of pod p crashes: it ends with exit code 2", do: "log"},
		"init waits": {objects: "kind: Pod\nspec: {nodeName: box, initContainers: [{name: i, image: x}], " +
			"containers: [{name: c, image: x}]}\nstatus: {phase: Pending, initContainerStatuses: [{name: i, " +
			"state: {running: {startedAt: '2026-01-01T00:08:00Z'}}}]}", log: "waiting for db\n",
			want: `Init container i of pod p has been running for 2m, and the other containers start when it has ended; its ` +
				`last line is "waiting for db".`, shows: "log: waiting for db", do: "Wait"},
		"end without times": {objects: strings.Replace(crashing("exitCode: 137, reason: ContainerStatusUnknown"),
			"startedAt: '2026-01-01T00:08:00Z', finishedAt: '2026-01-01T00:09:00Z', ", "", 1), want: "its end was not observed",
			shows: "last end: exit code 137", do: "log"},
		"node restarted": {objects: strings.Replace(crashing("exitCode: 255, reason: Unknown"),
			"waiting: {reason: CrashLoopBackOff, message: back-off 1m20s restarting}",
			"terminated: {exitCode: 255, reason: Unknown}", 1),
			want: "Container c of pod p ended when its node or the container runtime was restarted.",
			do:   "starts again by itself"},
		// Causes that the log of a crash names.
		"RBAC": {objects: crashing("exitCode: 1") +
			"\n---\nkind: RoleBinding\nmetadata: {name: b}\nroleRef: {kind: Role, name: reader}\n" +
			"subjects: [{kind: ServiceAccount, name: sa, namespace: default}]",
			log: `deployments.apps is forbidden: User "system:serviceaccount:default:sa" cannot list resource "deployments" ` +
				`in API group "apps" in the namespace "default"`,
			want:  "RBAC does not allow the ServiceAccount sa to list deployments in namespace default.",
			shows: "the binding b gives it the Role reader, which does not allow this",
			do: "kubectl create role sa --verb=list --resource=deployments.apps -n default, " +
				"and: kubectl create rolebinding sa --role=sa --serviceaccount=default:sa -n default."},
		"RBAC of the cluster": {objects: crashing("exitCode: 1"),
			log: `nodes is forbidden: User "system:serviceaccount:default:sa" cannot watch resource "nodes" in API group "" ` +
				`at the cluster scope`, want: "RBAC does not allow the ServiceAccount sa to watch nodes.",
			do: "kubectl create clusterrole sa --verb=watch --resource=nodes, " +
				"and: kubectl create clusterrolebinding sa --clusterrole=sa --serviceaccount=default:sa."},
		"unknown Service": {objects: crashing("exitCode: 1") + named("database"),
			log:   "dial tcp: lookup databse on 10.96.0.10:53: no such host",
			want:  "there is no Service databse in namespace default.",
			shows: "there is the Service database in namespace default", do: "correct the name"},
		"unknown Service elsewhere": {objects: crashing("exitCode: 1") + named("db"),
			log: "Error: getaddrinfo ENOTFOUND db.shop.svc.cluster.local", want: "there is no Service db in namespace shop.",
			shows: "there is the Service db in namespace default", do: "NAME.NAMESPACE"},
		"unknown name": {objects: crashing("exitCode: 1") + named("db"),
			log: "curl: (6) Could not resolve host: api.example.com", want: "DNS does not know the name api.example.com.",
			do: "DNS servers"},
		"Services not readable": {objects: crashing("exitCode: 1"), log: "lookup db: no such host",
			want: `its last line is "lookup db: no such host".`, do: "Fix what the log reports"},
		"refused by Service": {objects: crashing("exitCode: 1") + named("db"),
			log:  "psql: dial tcp 10.96.0.7:5432: connect: connection refused",
			want: "Service db has no endpoints: no pod in namespace default has the labels app=db.", do: "spec.selector"},
		"refused port": {objects: crashing("exitCode: 1") + named("db"),
			log: `connect to "db:5433": connection refused`, want: "Service db has no port 5433.", do: "Correct the port"},
		"refused, endpoints since": {objects: crashing("exitCode: 1") + named("db") +
			"\n---\nkind: Pod\nmetadata: {name: db-0, labels: {app: db}}\n" + onNode + "\n" + running +
			"\n---\nkind: EndpointSlice\nmetadata: {labels: {kubernetes.io/service-name: db}}\n" +
			"endpoints: [{addresses: [10.0.0.1]}]", log: "dial tcp 10.96.0.7:5432: connect: connection refused",
			want: "Service db refused the connection then, and has endpoints now.", do: "starts again"},
		"refused by itself": {objects: crashing("exitCode: 1"), log: "connect 127.0.0.1:6379: Connection refused",
			want: "nothing in the pod listens on port 6379 of localhost.", do: "localhost is the pod itself"},
		// Probes.
		"liveness, no event": {objects: strings.Replace(
			crashing("exitCode: 0, reason: Completed, message: 'Container c failed liveness probe, will be restarted'"),
			"'r/x:1'", "'r/x:1', livenessProbe: {httpGet: {path: /ok, port: 80}}", 1),
			want: "its liveness probe fails: its HTTP GET of /ok on port 80.", shows: "exit code 0", do: "livenessProbe"},
		"startup, no event": {objects: strings.Replace(
			crashing("exitCode: 143, message: 'Container c failed startup probe, will be restarted'"), "'r/x:1'",
			"'r/x:1', startupProbe: {tcpSocket: {port: db}}", 1), want: "its startup probe fails: its connection to port db.",
			do: "startupProbe"},
		"not ready": {objects: "kind: Pod\n" + onNode +
			"\nstatus: {phase: Running, conditions: [{type: Ready, status: 'False', reason: ContainersNotReady, " +
			"message: 'containers with unready status: [c]'}], containerStatuses: [{name: c, state: {running: {}}}]}",
			want: "Pod p runs, but is not ready: containers with unready status: [c] (ContainersNotReady).", do: "Wait"},
		"liveness": {objects: crashing("exitCode: 143") + event("Pod", "Killing",
			"Container c failed liveness probe, will be restarted") + event("Pod", "Unhealthy",
			"Liveness probe failed: HTTP probe failed with statuscode: 500"),
			want: "its liveness probe fails: the answer has the HTTP status 500", do: "livenessProbe"},
		"startup, killed": {objects: crashing("exitCode: 143") + event("Pod", "Killing",
			"Container c failed startup probe, will be restarted") + event("Pod", "Unhealthy",
			"Startup probe failed: command timed out: x"), want: "its startup probe fails: no answer", do: "startupProbe"},
		"readiness status": {objects: "kind: Pod\nspec: {nodeName: box, containers: [{name: c, image: x, " +
			"readinessProbe: {httpGet: {port: 80}}}]}\nstatus: {phase: Running, containerStatuses: [{name: c, started: true, " +
			"state: {running: {}}}]}" + event("Pod", "Unhealthy",
			"Readiness probe failed: HTTP probe failed with statuscode: 503"),
			want: "not ready: its readiness probe has not succeeded: the answer has the HTTP status 503", do: "readinessProbe"},
		"readiness refused": {objects: "kind: Pod\nspec: {nodeName: box, containers: [{name: c, image: x, " +
			"readinessProbe: {tcpSocket: {port: 80}}}]}\nstatus: {phase: Running, containerStatuses: [{name: c, " +
			"started: true, state: {running: {}}}]}" + event("Pod", "Unhealthy",
			"Readiness probe failed: dial tcp 10.0.0.1:80: connect: connection refused"), want: "nothing listens on its port",
			do: "readinessProbe"},
		"startup": {objects: "kind: Pod\nspec: {nodeName: box, containers: [{name: c, image: x, " +
			"startupProbe: {tcpSocket: {port: 80}}}]}\nstatus: {phase: Running, containerStatuses: [{name: c, " +
			"started: false, state: {running: {}}}]}", want: "startup probe has not succeeded yet", do: "failureThreshold"},
		"readiness gate": {objects: "kind: Pod\n" + onNode +
			"\nstatus: {phase: Running, conditions: [{type: Ready, status: 'False', reason: ReadinessGatesNotReady, " +
			"message: 'gate \"x\"'}], containerStatuses: [{name: c, ready: true, state: {running: {}}}]}",
			want: "a readiness gate is not True", do: "controller of the gate"},
		// Scheduling.
		"no cpu at all": {objects: pending("0/1 nodes are available: 1 Insufficient cpu."),
			want: "it requests 8 of cpu, and no node has more than 2", shows: "node box: 2 of cpu",
			do: "Lower resources.requests.cpu"},
		"no memory left": {objects: strings.Replace(pending("0/1 nodes are available: 1 Insufficient memory."),
			"cpu: '8'", "memory: 1Gi", 1), want: "it requests 1Gi of memory, and the requests of other pods leave less",
			do: "delete other pods"},
		"no device": {objects: pending("0/1 nodes are available: 1 Insufficient acme.com/gpu."),
			want: "no node offers acme.com/gpu", do: "device plugin"},
		"selector": {objects: pending(
			"0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."), want: "no node has the labels",
			do: "kubectl label node box"},
		"taint": {objects: strings.Replace(
			pending("0/1 nodes are available: 1 node(s) had untolerated taint(s)."), "metadata: {name: box}",
			"metadata: {name: box}\nspec: {taints: [{key: k, value: v, effect: NoSchedule}]}", 1), want: "has a taint",
			shows: "k=v:NoSchedule", do: "toleration"},
		"taint of a condition": {objects: strings.Replace(
			pending("0/1 nodes are available: 1 node(s) had untolerated taint(s)."), "metadata: {name: box}",
			"metadata: {name: box}\nspec: {taints: [{key: node.kubernetes.io/disk-pressure, effect: NoSchedule}]}", 1),
			want: "Pod p has no node: node box has the condition DiskPressure.", shows: "disk-pressure:NoSchedule",
			do: "Free space"},
		"cordoned": {objects: pending("0/1 nodes are available: 1 node(s) were unschedulable."),
			want: "the node is cordoned", do: "kubectl uncordon box"},
		"affinity": {objects: pending("0/1 nodes are available: 1 node(s) didn't match pod affinity rules."),
			want: "its affinity requires", do: "podAffinity"},
		"anti-affinity": {objects: pending("0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules."),
			want: "anti-affinity", do: "fewer replicas"},
		"spread": {objects: pending(
			"0/1 nodes are available: 1 node(s) didn't match pod topology spread constraints."), want: "spread constraints",
			do: "maxSkew"},
		"host port": {objects: pending(
			"0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."), want: "host port",
			do: "hostPort"},
		"host port's pod": {objects: strings.Replace(
			pending("0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."), "image: 'r/x:1'",
			"image: 'r/x:1', ports: [{containerPort: 80, hostPort: 8080}]", 1) +
			"\n---\nkind: Pod\nmetadata: {name: first}\n" +
			"spec: {nodeName: box, containers: [{name: c, ports: [{containerPort: 80, hostPort: 8080, protocol: TCP}]}]}",
			want: "Pod p has no node: pod first has its hostPort 8080 on node box.", do: "another hostPort"},
		"claim's reason": {objects: strings.Replace(
			pending("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."), "spec: {",
			"spec: {volumes: [{name: v, persistentVolumeClaim: {claimName: data}}], ", 1) +
			"\n---\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {storageClassName: fast}\n" +
			"status: {phase: Pending}", want: `Pod p has no node: claim data waits for a volume: the StorageClass "fast" ` +
			`does not exist.`, do: "Create the StorageClass"},
		"claim unbound": {objects: strings.Replace(
			pending("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."), "spec: {",
			"spec: {volumes: [{name: v, persistentVolumeClaim: {claimName: data}}], ", 1), want: "a claim is not bound",
			do: "monopod why pvc/data"},
		"claim missing": {objects: pending(`0/1 nodes are available: persistentvolumeclaim "data" not found.`),
			want: `its claim "data" does not exist`, do: "Create the PersistentVolumeClaim"},
		"two reasons": {objects: pending(
			"0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable."),
			want: "no node has more than 2; the node is cordoned", do: "uncordon"},
		"preempting": {objects: strings.Replace(pending("0/1 nodes are available: 1 Insufficient cpu."),
			"{phase: Pending,", "{phase: Pending, nominatedNodeName: box,", 1),
			want: "waits for node box, where pods of lower priority", do: "Wait"},
		"gate": {objects: "kind: Pod\nspec: {schedulingGates: [{name: acme.com/g}], containers: [{name: c}]}",
			want: "its scheduling gate acme.com/g is not removed yet", do: "schedulingGates"},
		"another scheduler": {objects: "kind: Pod\nspec: {schedulerName: mine, containers: [{name: c}]}",
			want: `waits for the scheduler "mine"`, do: "schedulerName"},
		"not scheduled yet": {objects: "kind: Pod\nmetadata: {creationTimestamp: '2026-01-01T00:09:00Z'}\n" +
			"spec: {containers: [{name: c}]}", want: "has been waiting for the scheduler for 60s", do: "--controllers"},
		// Configuration and volumes.
		"no ConfigMap": {objects: waiting("CreateContainerConfigError", `configmap "settings" not found`),
			want: "the ConfigMap settings does not exist", do: "Create the ConfigMap"},
		"no key": {objects: waiting("CreateContainerConfigError",
			"couldn't find key k in Secret default/s"), want: "Secret s has no key k", do: "Add the key"},
		"root": {objects: waiting("CreateContainerConfigError",
			"container has runAsNonRoot and image will run as root"), want: "runAsNonRoot is set", do: "runAsUser"},
		"misspelt": {objects: waiting("ErrImagePull", "dial tcp: lookup r: no such host") +
			"\n---\nkind: Node\nmetadata: {name: box}\nstatus: {images: [{names: ['zebra/box:2', 'r/xx:1']}]}",
			want: "name of the registry cannot be resolved", do: "The node has the image \"r/xx:1\"; did you mean that one?"},
		"no Secret": {objects: starting("FailedMount",
			`MountVolume.SetUp failed for volume "v": secret "s" not found`), want: "the Secret s does not exist",
			do: "Create the Secret"},
		"no key in mount": {objects: starting("FailedMount", "configmap references non-existent config key: k"),
			want: "the key k, which its source does not have", do: "items"},
		"host path": {objects: starting("FailedMount", "hostPath type check failed: /x is not a directory"),
			want: "/x is not a directory", do: "DirectoryOrCreate"},
		"volume": {objects: starting("FailedMount", "kernel says no"),
			want: "a volume fails to mount: kernel says no", do: "again by itself"},
		"sandbox": {objects: starting("FailedCreatePodSandBox",
			"Failed to create pod sandbox: plugin failed"), want: "its network cannot be set up: plugin failed",
			do: "Check the pod network"},
		"sandbox's cgroup": {objects: starting("FailedCreatePodSandBox",
			"Failed to create pod sandbox: rpc error: code = Unknown desc = runc create failed: no cgroup mount found in "+
				"mountinfo: unknown"), want: "cannot use the cgroups of the machine: runc create failed: no cgroup mount found " +
			"in mountinfo.", do: "monopod check"},
		"sandbox's runc": {objects: starting("FailedCreatePodSandBox", "failed to start shim: exit status 1"),
			want: "the container runtime cannot start it", do: "Check runc"},
		"sandbox unknown": {objects: starting("FailedCreatePodSandBox", "something else"),
			want: "its sandbox cannot be created: something else", do: "the log of monopod"},
		"device plugin": {objects: starting("WaitingForDevicePlugin", "x"), want: "plugin of its device", do: "Start"},
		"pulling": {objects: normal(starting("Pulling", "Pulling image")),
			want: "has been pulling its image for 30s", do: "Wait"},
		"restarted, no ConfigMap": {objects: restarted("exitCode: 255, reason: Unknown"),
			absent: client.Ref{Resource: client.ConfigMaps, Namespace: "default", Name: "settings"},
			want:   "Pod p does not start again: the ConfigMap settings does not exist.", do: "Create the ConfigMap"},
		"restarted, no folder": {objects: restarted(
			"exitCode: 137, reason: Error, finishedAt: '2026-01-01T00:09:00Z'") + event("Pod", "FailedMount",
			"hostPath type check failed: /x is not a directory"),
			want: "Pod p does not start again: a hostPath volume does not fit: /x is not a directory.", do: "Create the path"},
		"restarted, mounted since": {objects: restarted(
			"exitCode: 1, reason: Error, startedAt: '2026-01-01T00:09:32Z', finishedAt: '2026-01-01T00:09:40Z'") + event("Pod",
			"FailedMount", "kernel says no"), want: "Container c of pod p crashes: it ends with exit code 1", do: "Fix"},
		"no Secret, no event": {objects: "kind: Pod\nspec: {nodeName: box, volumes: [{name: v, " +
			"secret: {secretName: s}}], containers: [{name: c, image: x}]}\n" +
			"status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ContainerCreating}}}]}",
			absent: client.Ref{Resource: client.Secrets, Namespace: "default", Name: "s"},
			want:   "Pod p does not start: the Secret s does not exist.", do: "Create the Secret"},
		"ConfigMap created since": {objects: starting("FailedMount", `configmap "settings" not found`) +
			"\n---\nkind: ConfigMap\nmetadata: {name: settings}",
			want: "the ConfigMap settings did not exist at the last attempt, and exists now.", do: "Wait"},
		"scheduled since": {objects: starting("FailedScheduling", "0/1 nodes are available: 1 Insufficient cpu."),
			want: "Pod p has been starting on node box", do: "Wait"},
		"pulling since": {objects: normal(starting("Pulling", "Pulling image")) + strings.Replace(event("Pod",
			"FailedMount", "kernel says no"), "00:09:30Z", "00:09:00Z", 1), want: "has been pulling its image", do: "Wait"},
		"no such node": {objects: "kind: Pod\n" + onNode + "\nstatus: {phase: Pending}",
			absent: client.Ref{Resource: client.Nodes, Name: "box"}, want: "Pod p does not start: its node box does not exist.",
			do: "Correct spec.nodeName"},
		"node deleted": {objects: "kind: Pod\n" + onNode + "\n" + running,
			absent: client.Ref{Resource: client.Nodes, Name: "box"}, want: "Pod p ran on node box, which no longer exists.",
			do: "its owner creates another one"},
		// Ends of pods.
		"evicted": {objects: failed("Evicted", "The node was low on resource: memory."),
			want: "was evicted from its node: The node was low on resource: memory",
			do:   "create the pod again, because it has no owner"},
		"evicted, owned": {objects: strings.Replace(failed("Evicted", "x"), "kind: Pod\n",
			"kind: Pod\nmetadata: {ownerReferences: [{controller: true, kind: Backup, name: b, uid: u}]}\n", 1),
			want: "was evicted", do: "its owner creates another pod."},
		"critical": {objects: failed("Preempting", "x"), want: "make room for a critical pod", do: "priority"},
		"deadline of a pod": {objects: failed("DeadlineExceeded", "x"), want: "longer than its activeDeadlineSeconds",
			do: "Raise"},
		"node shut down": {objects: failed("Terminated", "Pod was terminated"), want: "its node shut down", do: "back"},
		"out of cpu": {objects: failed("OutOfcpu", "Node didn't have enough resource: cpu"),
			want: "too few free resources", do: "Lower"},
		"refused by node": {objects: failed("SysctlForbidden", "forbidden sysctl"),
			want: "forbidden sysctl (SysctlForbidden)", do: "Change the pod"},
		"completed": {objects: "kind: Pod\n" + onNode + "\nstatus: {phase: Succeeded}", want: "has completed"},
		"node down": {objects: "kind: Pod\n" + onNode + "\n" + running + "\n---\n" + strings.Replace(node, "'True'",
			"Unknown, message: Kubelet stopped posting node status.", 1),
			want: "on node box, which is not ready: Kubelet stopped", do: "monopod why node/box"},
		"fine": {objects: "kind: Pod\n" + onNode + "\n" + running, want: "runs and is ready"},
		"restarted": {objects: "kind: Pod\n" + onNode +
			"\nstatus: {phase: Running, containerStatuses: [{name: c, ready: true, restartCount: 2, state: {running: {}}, " +
			"lastState: {terminated: {exitCode: 1, finishedAt: '2026-01-01T00:09:00Z'}}}]}", want: "were restarted 2 times",
			shows: "60s ago: exit code 1"},
		// Deletion.
		"preStop": {objects: "kind: Pod\nmetadata: {deletionTimestamp: '2026-01-01T00:10:20Z', " +
			"deletionGracePeriodSeconds: 30}\n" +
			"spec: {nodeName: box, containers: [{name: c, lifecycle: {preStop: {sleep: {seconds: 5}}}}]}\n" + running,
			want: "container c still runs, and 20s of the time for the preStop hook of container c",
			do:   "terminationGracePeriodSeconds"},
		"grace": {objects: "kind: Pod\nmetadata: {deletionTimestamp: '2026-01-01T00:10:20Z'}\n" + onNode + "\n" +
			running, want: "20s of the time to end after SIGTERM", do: "SIGTERM"},
		"grace period over": {objects: "kind: Pod\nmetadata: {deletionTimestamp: '2026-01-01T00:09:00Z'}\n" + onNode + "\n" +
			running, want: "grace period ended 60s ago", do: "runtime"},
		"finalizer": {objects: "kind: Pod\nmetadata: {deletionTimestamp: '2026-01-01T00:09:00Z', " +
			"finalizers: [acme.com/f]}\n" + onNode, want: "waits for its finalizer acme.com/f", do: "remove the finalizer"},
		"preempted": {objects: "kind: Pod\nmetadata: {deletionTimestamp: '2026-01-01T00:10:20Z'}\n" + onNode +
			"\nstatus: {phase: Running, conditions: [{type: DisruptionTarget, status: 'True', reason: PreemptionByScheduler}]}",
			want: "a pod of higher priority needs its resources", do: "priorityClassName"},
		"deleted, node down": {objects: "kind: Pod\nmetadata: {deletionTimestamp: '2026-01-01T00:09:00Z'}\n" + onNode +
			"\n---\n" +
			strings.Replace(node, "'True'", "Unknown", 1), want: "its node box does not respond", do: "--force"},
		// Workloads.
		"quota": {objects: refused(
			`Error creating: pods "x" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1`),
			want: "Deployment p has 0 of 3 replicas ready: no pod can be created, " +
				"because a ResourceQuota of the namespace is used up (exceeded quota: small, requested: pods=1, used: pods=1, " +
				"limited: pods=1).", do: "Raise"},
		"limit range": {objects: refused(
			`pods "x" is forbidden: maximum memory usage per Container is 1Gi, but limit is 2Gi`), want: "a LimitRange",
			do: "LimitRange"},
		"pod security": {objects: refused(
			`pods "x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot`), want: "Pod Security level",
			do: "enforce"},
		"service account": {objects: refused("error looking up service account default/sa: not found"),
			want: "service account does not exist", do: "ServiceAccount"},
		"webhook": {objects: refused(`admission webhook "x.acme.com" denied the request: no`),
			want: `an admission webhook denies it (admission webhook "x.acme.com" denied)`, do: "webhook"},
		"policy": {objects: refused("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"),
			want: "ValidatingAdmissionPolicy denies it", do: "policy"},
		"priority class": {objects: refused("no PriorityClass with name x was found"),
			want: "PriorityClass does not exist", do: "Create"},
		"cause in its pod": {objects: deployment + ownedPod(waiting("ErrImagePull", "not found")),
			want: "Deployment p has 0 of 3 replicas ready: container c of pod p does not start", shows: "pod p, phase Pending",
			do: "Correct the name"},
		"progress deadline": {objects: strings.Replace(deployment, "updatedReplicas: 1",
			"updatedReplicas: 1, conditions: [{type: Progressing, status: 'False', reason: ProgressDeadlineExceeded, "+
				"message: timed out}]", 1) + ownedPod(crashing("exitCode: 1")), want: "crashes", shows: "ProgressDeadlineExceeded",
			do: "log"},
		"paused": {objects: "kind: Deployment\nspec: {paused: true, replicas: 1}\n" +
			"status: {replicas: 1, readyReplicas: 1, updatedReplicas: 0}", want: "its rollout is paused", do: "rollout resume"},
		"scaled to zero": {objects: "kind: Deployment\nspec: {replicas: 0}", want: "its replicas are 0", do: "--replicas=1"},
		"not observed yet": {objects: "kind: Deployment\nmetadata: {generation: 2}\nstatus: {observedGeneration: 1}",
			want: "has not acted on it", do: "--controllers"},
		"complete": {objects: "kind: Deployment\nspec: {replicas: 2}\n" +
			"status: {replicas: 2, readyReplicas: 2, updatedReplicas: 2}", want: "complete: 2 of 2"},
		"stateful order": {objects: "kind: StatefulSet\nspec: {replicas: 3, selector: {matchLabels: {a: b}}}\n" +
			"status: {replicas: 1}\n---\n" + crashing("exitCode: 1"), want: "StatefulSet p has 0 of 3 pods ready: container c",
			shows: "OrderedReady", do: "log"},
		"older template": {objects: rollout + ownedPod(waiting("ErrImagePull", "not found")),
			want: "Deployment p has 3 of 3 replicas ready, not all of the current revision: container c of pod p does not start",
			do:   "kubectl rollout undo deployment/p"},
		"older template, refused": {objects: rollout + event("ReplicaSet", "FailedCreate",
			"ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"),
			want: "not all of the current revision: no pod can be created",
			do:   "at once after: kubectl rollout restart deployment/p"},
		"refused without a template": {objects: "kind: Job\nspec: {parallelism: 1}" + event("Job", "FailedCreate",
			"no PriorityClass with name x was found"), want: "PriorityClass does not exist", do: "grow to 16 minutes."},
		"stateful, undone": {objects: "kind: StatefulSet\nspec: {replicas: 2}\n" +
			"status: {replicas: 2, readyReplicas: 1, updateRevision: ss-new}\n---\n" +
			strings.Replace(waiting("ErrImageNeverPull", "x"), "kind: Pod\n",
				"kind: Pod\nmetadata: {name: p-1, labels: {controller-revision-hash: ss-broken}}\n", 1),
			want: "StatefulSet p has 1 of 2 pods ready, and its rollout waits for a broken pod of another revision: " +
				"container c of pod p-1", shows: "pod p-1 is of the revision ss-broken, the StatefulSet wants ss-new",
			do: "kubectl delete pod p-1"},
		"no node for a DaemonSet": {objects: "kind: DaemonSet\nstatus: {desiredNumberScheduled: 0}", want: "no node fits",
			do: "Label a node"},
		"backoff limit": {objects: job("{type: Failed, status: 'True', reason: BackoffLimitExceeded}") +
			"\n---\nkind: Pod\nspec: {nodeName: box, restartPolicy: Never, containers: [{name: c}]}\n" +
			"status: {phase: Failed, containerStatuses: [{name: c, state: {terminated: {exitCode: 7}}}]}",
			want: "more often than backoffLimit (2) allows. Container c of pod p crashes: it ends with exit code 7",
			do:   "create the Job again"},
		"job's deadline": {objects: job("{type: Failed, status: 'True', reason: DeadlineExceeded}"),
			want: "longer than activeDeadlineSeconds", do: "Raise"},
		"failure policy": {objects: job(
			"{type: Failed, status: 'True', reason: PodFailurePolicy, message: exit code 42}"),
			want: "podFailurePolicy ends it: exit code 42", do: "again"},
		"job suspended": {objects: "kind: Job\nspec: {suspend: true}", want: "is suspended", do: "suspend"},
		"job complete":  {objects: job("{type: Complete, status: 'True'}"), want: "is complete"},
		"cron never": {objects: "kind: CronJob\nspec: {schedule: '0 0 30 2 *', timeZone: Etc/UTC}",
			want: `CronJob p never runs: no date matches its schedule "0 0 30 2 *".`, do: "Correct spec.schedule"},
		"cron zone": {objects: "kind: CronJob\nspec: {schedule: '0 3 * * *', timeZone: Atlantis/City}",
			want: `CronJob p never runs: its schedule "0 3 * * *" or its time zone "Atlantis/City" is not valid.`,
			do:   "spec.timeZone"},
		"cron next": {objects: "kind: CronJob\nspec: {schedule: '0 3 * * *', timeZone: Etc/UTC}",
			want: "CronJob p runs next in 170m, at 2026-01-01T03:00:00Z.", shows: "next start: 2026-01-01T03:00:00Z"},
		"cron in another zone": {objects: "kind: CronJob\nspec: {schedule: '0 3 * * *', timeZone: Asia/Tokyo}",
			want: "at 2026-01-01T18:00:00Z."},
		"cron every": {objects: "kind: CronJob\nmetadata: {creationTimestamp: '2026-01-01T00:05:00Z'}\n" +
			"spec: {schedule: '@every 7m'}", want: "CronJob p runs next in 2m, at 2026-01-01T00:12:00Z."},
		"cron suspended": {objects: "kind: CronJob\nspec: {schedule: '* * * * *', suspend: true}",
			want: "is suspended", do: "suspend"},
		"cron missed": {objects: "kind: CronJob\nspec: {schedule: '* * * * *'}" +
			event("CronJob", "MissSchedule", "Missed scheduled time to start a job: x"), want: "has missed a start",
			do: "clock"},
		"cron forbids": {objects: "kind: CronJob\nspec: {schedule: '* * * * *'}" +
			event("CronJob", "JobAlreadyActive", "x"), want: "while the previous one runs", do: "concurrencyPolicy"},
		"cron's last job": {objects: "kind: CronJob\nspec: {schedule: '* * * * *'}\n---\n" +
			strings.Replace(job("{type: Failed, status: 'True', reason: DeadlineExceeded}"), "spec:",
				"metadata: {ownerReferences: [{controller: true, uid: CronJob-p, kind: CronJob, name: p}]}\nspec:", 1),
			want: "CronJob p runs next in 60s. Its last Job: Job p has failed", do: "Raise"},
		// Services, Ingresses.
		"selector of a service": {objects: service + "\n---\nkind: Pod\nmetadata: {labels: {app: wbe}}\n" + onNode,
			want: "no pod in namespace default has the labels app=web", shows: "pod p has the labels app=wbe",
			do: "spec.selector"},
		"target port": {objects: service + webPod("www", running),
			want: `no container has a port with the name "http"`, shows: `the port "www" (8080)`, do: "targetPort"},
		"no listener": {objects: strings.Replace(service, "targetPort: http", "targetPort: 9999",
			1) + webPod("http", running) + slice, closed: "p:9999",
			want: "Service p has 1 endpoint ready, but nothing listens on targetPort 9999 of its pods (connection refused), " +
				"where its port 80 leads.", shows: "container c of pod p declares the port 8080", do: "Correct targetPort"},
		"no listener, named port": {objects: service + webPod("http", running) + slice, closed: "p:8080",
			want: "nothing listens on targetPort 8080", do: "all addresses"},
		"pods not ready": {objects: service + webPod("http",
			"status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ErrImageNeverPull}}}]}"),
			want: "Service p has no endpoints that are ready: container c", do: "Copy the image"},
		"no selector": {objects: "kind: Service\nspec: {ports: [{port: 80}]}", want: "it has no selector",
			do: "EndpointSlice"},
		"API on loopback": {objects: "kind: Service\nmetadata: {name: kubernetes}\nspec: {ports: [{port: 443}]}",
			want: "listens on a loopback address only", do: "--listen="},
		"load balancer": {objects: "kind: Service\nspec: {type: LoadBalancer, ports: [{port: 80}]}" + slice,
			want: "no address of a load balancer", do: "--load-balancer-pool"},
		"closed": {objects: service + webPod("http", running) + slice + netpol("policyTypes: [Ingress]"),
			want:  "has 1 endpoint ready, but no pod may reach them: NetworkPolicy shut",
			shows: "NetworkPolicy shut: no pod may reach them", do: "Add an ingress rule"},
		"partly open": {objects: service + webPod("http", running) + slice + netpol(
			"policyTypes: [Ingress], ingress: [{from: [{podSelector: {matchLabels: {a: b}}}], ports: [{port: 80}]}]"),
			want: "has 1 endpoint ready.", shows: "only these may reach them: connections from pods with a=b of the " +
				"namespace at TCP port 80"},
		"policy without pods": {objects: "kind: NetworkPolicy", want: "selects no pod", do: "podSelector"},
		"policy of a pod": {objects: "kind: NetworkPolicy\nspec: {policyTypes: [Ingress, Egress], " +
			"egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}, {namespaceSelector: {}}]}]}\n---\nkind: Pod\n" + onNode, want: "selects 1 pod: no pod may reach them; they may open only connections to 10.0.0.0/8 except 10.1.0.0/16 or all pods of all namespaces.", shows: "selects pod p"},
		"dropped": {objects: crashing("exitCode: 1") + netpol("policyTypes: [Ingress]"),
			log: "get http://web/: dial tcp 10.0.0.1:80: i/o timeout", want: "crashes",
			shows: "NetworkPolicy shut: no pod may reach them", do: "monopod why networkpolicy/shut"},
		"endpoints": {objects: service + webPod("http", running) + slice, want: "has 1 endpoint ready"},
		"ingress class": {objects: ingress + "\n---\nkind: IngressClass\nmetadata: {name: nginx}\n",
			want: `its IngressClass "monopod" does not exist`, shows: "nginx", do: "Start monopod with --ingress"},
		"class of another controller": {objects: strings.Replace(ingress, "monopod", "nginx", 1) +
			"\n---\nkind: IngressClass\nmetadata: {name: nginx}\nspec: {controller: k8s.io/ingress-nginx}" + ingressClass +
			"spec: {controller: monopod.io/ingress}\n---\n" + service + slice,
			want: "Ingress p is not served by monopod: its IngressClass nginx belongs to the controller " +
				"k8s.io/ingress-nginx, which has not given it an address.",
			do: "Set spec.ingressClassName: monopod, and monopod serves it"},
		"class missing, ours exists": {objects: strings.Replace(ingress, "monopod", "nginx", 1) + ingressClass +
			"spec: {controller: monopod.io/ingress}", want: `its IngressClass "nginx" does not exist`,
			do: "Set spec.ingressClassName: monopod"},
		"no ingress class": {objects: "kind: Ingress\nspec: {}", want: "no IngressClass is the default", do: "--ingress"},
		"no backend":       {objects: ingress + ingressClass, want: "its Service p does not exist", do: "Create the Service"},
		"backend's port": {objects: ingress + ingressClass + "---\nkind: Service\nspec: {ports: [{port: 8080}]}",
			want: "its Service p has no port 80", do: "Correct the port"},
		"backend down": {objects: ingress + ingressClass + "---\n" + service,
			want: "Ingress p answers 503: Service p has no endpoints: no pod", do: "selector"},
		"ingress served": {objects: ingress + "\nstatus: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}" + ingressClass +
			"---\n" + service + slice, want: "is served at 192.0.2.1"},
		// Storage.
		"no default class": {objects: claim(""), want: "there is no default one", do: "is-default-class"},
		"class missing": {objects: claim("storageClassName: fast"), want: `the StorageClass "fast" does not exist`,
			do: "Create the StorageClass"},
		"first consumer": {objects: claim("storageClassName: s") + class(
			"provisioner: x\nvolumeBindingMode: WaitForFirstConsumer"), want: "waits for its first pod, and nothing is wrong"},
		"no provisioner": {objects: claim("storageClassName: s") + class("provisioner: kubernetes.io/no-provisioner"),
			want: "no PersistentVolume fits", do: "Create a PersistentVolume"},
		"not provisioned": {objects: claim("storageClassName: s") + class("provisioner: monopod.io/local") + event(
			"PersistentVolumeClaim", "ProvisioningFailed", "block volumes are not supported"),
			want: "block volumes are not supported", do: "Change the claim"},
		"claim in use": {objects: "kind: PersistentVolumeClaim\nmetadata: {deletionTimestamp: '2026-01-01T00:09:00Z', " +
			"finalizers: [kubernetes.io/pvc-protection]}\n---\nkind: Pod\n" + onNode, want: "stays until its pods have ended: p",
			do: "Delete these pods"},
		"volume lost": {objects: "kind: PersistentVolumeClaim\nspec: {volumeName: v}\nstatus: {phase: Lost}",
			want: "has lost its volume v", do: "create it again"},
		// CSI drivers.
		"no such driver": {objects: driverPod(creating, csiNode("other.acme.com")) + event("Pod", "FailedMount",
			"driver name d.csi.acme.com not found in the list of registered CSI drivers"),
			want: "Pod p does not start: the driver d.csi.acme.com of its volume vol is not installed: nothing in the " +
				"cluster provides it.", shows: "event FailedMount", do: "Install the driver d.csi.acme.com"},
		"driver not on node": {objects: driverPod(creating, driver+csiNode("other.acme.com")),
			want: "the driver d.csi.acme.com of its volume vol is not installed on node box.",
			do:   "none of its pods is on the node"},
		"no CSINode": {objects: driverPod(creating, driver), absent: client.Ref{Resource: client.CSINodes,
			Name: "box"}, want: "is not installed on node box", do: "DaemonSet"},
		"driver's pod": {objects: driverPod(creating, driver+csiNode("x")+registrar),
			want: "is not installed on node box", shows: "pod default/d-node is not ready",
			do: "monopod why pod/d-node -n default"},
		"inline volume": {objects: "kind: Pod\nspec: {nodeName: box, volumes: [{name: secrets, " +
			"csi: {driver: s.acme.com}}]}\n" + creating + csiNode("x"),
			want: "the driver s.acme.com of its volume secrets is not installed", do: "Install"},
		"not attached yet": {objects: driverPod(creating,
			driver+installed+attachment("}\nspec: {attacher: d.csi.acme.com}")),
			want: "its volume vol is not attached to node box yet; the driver d.csi.acme.com has not answered for 3m.",
			do:   "external-attacher runs"},
		"attach fails": {objects: driverPod(creating,
			installed+attachment("}\nstatus: {attachError: {message: 'rpc error: code = NotFound desc = rpc error: code = "+
				"NotFound desc = no disk h'}}")), want: "the driver d.csi.acme.com fails to attach its volume vol to node box: " +
			"no disk h (NotFound).", do: "Fix what the driver reports"},
		"being detached": {objects: driverPod(creating,
			installed+attachment(", deletionTimestamp: '2026-01-01T00:09:00Z'}\nstatus: {detachError: {message: busy}}")),
			want: "its volume vol is still being detached from node box.", shows: "the driver fails to detach it: busy",
			do: "Wait"},
		"used elsewhere": {objects: driverPod(creating, installed) + event("Pod", "FailedAttachVolume",
			`Waiting for detach for volume "vol" Volume is already used by pod(s) q`),
			want: "its volume vol is attached to another node: already used by pod(s) q.", do: "Delete the pods"},
		"the driver fails": {objects: driverPod(creating, installed+attachment("}\nstatus: {attached: true}")) + event(
			"Pod", "FailedMount", `MountVolume.SetUp failed for volume "vol" : rpc error: code = Internal desc = mount `+
				`failed: connection refused`), want: "Pod p does not start: the driver d.csi.acme.com fails to mount its " +
			"volume: mount failed: connection refused (Internal).", do: "Fix what the driver reports: the server"},
		"the second driver fails": {objects: strings.Replace(driverPod(creating,
			csiNode("d.csi.acme.com}, {name: other.csi.acme.com")+attachment("}\nstatus: "+
				"{attached: true}")), "volumes: [", "volumes: [{name: first, csi: {driver: other.csi.acme.com}}, ", 1) +
			event("Pod", "FailedMount", `MountVolume.SetUp failed for volume "v" : rpc error: code = Internal desc = no share`),
			want: "Pod p does not start: the driver d.csi.acme.com fails to mount its volume: no share (Internal).",
			do:   "Fix what the driver reports: the server"},
		"cannot unmount": {objects: strings.Replace(
			driverPod("status: {phase: Running, containerStatuses: [{name: c, state: {terminated: {exitCode: 0}}}]}",
				driver+csiNode("x")), "kind: Pod\n", "kind: Pod\nmetadata: {deletionTimestamp: '2026-01-01T00:09:00Z'}\n", 1),
			want: "Pod p is being deleted and cannot end: the driver d.csi.acme.com, which must unmount its volume vol, " +
				"is not installed on node box.", do: "Install the driver"},
		"no free storage": {objects: pending("0/1 nodes are available: 1 node(s) did not have enough free storage."),
			want: "no node has enough free storage for its claims", do: "kubectl get csistoragecapacities -A"},
		"driver prevents it": {objects: pending(
			"0/1 nodes are available: 1 d.csi.acme.com CSI driver is not installed on the node."),
			want: "the CSI driver d.csi.acme.com of its volume is not installed on any node that fits",
			do:   "kubectl get csinodes"},
		"class created since": {objects: claim("storageClassName: s") + class("provisioner: d.csi.acme.com") +
			event("PersistentVolumeClaim", "ProvisioningFailed", `storageclass.storage.k8s.io "s" not found`) +
			"\nsource: {component: persistentvolume-controller}", want: `Claim p waits for the provisioner "d.csi.acme.com"`,
			do: "Install"},
		"provisioner missing": {objects: claim("storageClassName: s") + class("provisioner: d.csi.acme.com"),
			want: `Claim p waits for the provisioner "d.csi.acme.com", which is not installed: no pod in the cluster ` +
				`provisions volumes.`, do: "Install the driver"},
		"provisioner's pod": {objects: claim("storageClassName: s") + class("provisioner: d.csi.acme.com") + driver,
			want: `Claim p waits for the provisioner "d.csi.acme.com": no pod in the cluster provisions volumes.`,
			do:   "csi-provisioner"},
		"provisioner not ready": {objects: claim("storageClassName: s") + class(
			"provisioner: d.csi.acme.com") + driver + fmt.Sprintf(provisioner, "False"), want: "which has not answered",
			shows: "pod default/d-controller is not ready", do: "monopod why pod/d-controller -n default"},
		"provisioner silent": {objects: claim("storageClassName: s") + class(
			"provisioner: d.csi.acme.com") + driver + fmt.Sprintf(provisioner, "True"), want: "which has not answered",
			do: "kubectl logs -n default d-controller"},
		"provisioner fails": {objects: claim("storageClassName: s") + class("provisioner: d.csi.acme.com") + event(
			"PersistentVolumeClaim", "ProvisioningFailed",
			`failed to provision volume with StorageClass "s": rpc error: code = ResourceExhausted desc = pool is full`),
			want: "Claim p waits for a volume: pool is full (ResourceExhausted).",
			do:   `the provisioner "d.csi.acme.com" reports`},
		"immediate, used by a pod": {objects: claim("storageClassName: s") + class("provisioner: d.csi.acme.com") + driver +
			"\n---\nkind: Pod\nmetadata: {name: user}\n" + free, want: "Claim p waits for the provisioner",
			do: "csi-provisioner"},
		"for the selected node": {objects: strings.Replace(claim("storageClassName: s"), "spec:",
			"metadata: {annotations: {volume.kubernetes.io/selected-node: box}}\nspec:",
			1) + class("provisioner: d.csi.acme.com\nvolumeBindingMode: WaitForFirstConsumer") + driver +
			"\n---\nkind: Pod\nmetadata: {name: user}\n" + free, want: "Claim p waits for the provisioner",
			do: "csi-provisioner"},
		"expansion not begun": {objects: growing(""),
			want: "Claim p is bound, and its expansion from 2Gi to 5Gi has not begun.", do: "external-resizer runs"},
		"being expanded": {objects: growing(", conditions: [{type: Resizing, status: 'True'}]"),
			want: "is being done by its driver", do: "Wait"},
		"expansion needs a pod": {objects: growing(
			", conditions: [{type: FileSystemResizePending, status: 'True', message: x}]"),
			want: "waits for a pod: its node expands the file system", shows: "condition FileSystemResizePending is True: x",
			do: "Start a pod"},
		"expansion on the node": {objects: growing(", conditions: [{type: FileSystemResizePending, status: 'True'}]") +
			"\n---\nkind: Pod\nmetadata: {name: user}\n" + onNode, want: "waits until the node of its pod", do: "Wait"},
		"expansion fails": {objects: growing(
			", conditions: [{type: ControllerResizeError, status: 'True', message: 'rpc error: code = OutOfRange desc = too " +
				"large'}]"), want: "its expansion from 2Gi to 5Gi fails: too large (OutOfRange).",
			do: "lower the request; it must stay above 2Gi"},
		"attributes fail": {objects: strings.Replace(
			growing(", modifyVolumeStatus: {targetVolumeAttributesClassName: gold, status: Infeasible}, "+
				"conditions: [{type: ModifyVolumeError, status: 'True', message: no such iops}]"), "5Gi", "2Gi", 1),
			want: `the change to the VolumeAttributesClass "gold" fails: no such iops.`, do: "another VolumeAttributesClass"},
		"attributes change": {objects: strings.Replace(
			growing(", modifyVolumeStatus: {targetVolumeAttributesClassName: gold, status: Pending}"), "5Gi", "2Gi", 1),
			want: `waits for the change to the VolumeAttributesClass "gold"`, do: "Wait"},
		// Nodes, autoscalers, budgets, anything.
		"node not ready": {objects: "kind: Node\nstatus: {conditions: [{type: Ready, status: 'False', " +
			"message: container runtime is down}]}", want: "is not ready: container runtime is down", do: "containerd"},
		"node silent": {objects: "kind: Node\nstatus: {conditions: [{type: Ready, status: Unknown, " +
			"message: stopped posting}]}", want: "does not report", do: "Start monopod"},
		"disk pressure": {objects: "kind: Node\nstatus: {conditions: [{type: Ready, status: 'True'}, " +
			"{type: DiskPressure, status: 'True', message: full}]}", want: "has the condition DiskPressure: full",
			do: "Free space"},
		"drain blocked by pdb": {objects: "kind: Node\nspec: {unschedulable: true}\n" +
			"status: {conditions: [{type: Ready, status: 'True'}]}\n---\nkind: PodDisruptionBudget\n" +
			"status: {expectedPods: 1, disruptionsAllowed: 0}", want: "is ready and cordoned", shows: "a drain waits for it",
			do: "uncordon"},
		"hpa without target": {objects: hpa("{type: AbleToScale, status: 'False', reason: FailedGetScale}"),
			want: "Deployment web cannot be read", do: "scaleTargetRef"},
		"hpa no metrics": {objects: hpa("{type: ScalingActive, status: 'False', reason: FailedGetResourceMetric, " +
			"message: no metrics returned}"), want: "has no metrics of Deployment web: no metrics returned", do: "kubectl top"},
		"hpa metrics API missing": {objects: hpa("{type: ScalingActive, status: 'False', reason: FailedGetExternalMetric, " +
			"message: 'unable to fetch metrics from external metrics API: the server could not find the requested resource " +
			"(get queue.external.metrics.k8s.io)'}"),
			want: "has no metrics of Deployment web: nothing serves the API external.metrics.k8s.io.", do: "metrics adapter"},
		"hpa no requests": {objects: hpa("{type: ScalingActive, status: 'False', reason: FailedGetResourceMetric, " +
			"message: missing request for cpu}"), want: "have no requests", do: "resources.requests"},
		"hpa at its limit": {objects: hpa("{type: ScalingLimited, status: 'True', reason: TooManyReplicas}"),
			want: "at 5 replicas, a limit", do: "maxReplicas"},
		"budget exhausted": {objects: "kind: PodDisruptionBudget\nstatus: {expectedPods: 2, currentHealthy: 2, " +
			"desiredHealthy: 2}", want: "all of its 2 healthy pods must stay", do: "more replicas"},
		"budget without pods": {objects: "kind: PodDisruptionBudget", want: "it selects no pods", do: "spec.selector"},
		"condition of a kind": {objects: "kind: Namespace\nstatus: {conditions: [{type: Ready, status: 'False', " +
			"reason: Why, message: because}]}", want: "is not Ready: because (Why)", do: "message"},
		"condition of a route's parent": {objects: "apiVersion: acme.com/v1\nkind: Backup\nmetadata: {name: r, namespace: n}\n" +
			"status: {parents: [{conditions: [{type: Accepted, status: 'True'}, {type: ResolvedRefs, status: 'False', " +
			"reason: BackendNotFound, message: no such Service}]}]}",
			want: "is not ResolvedRefs: no such Service (BackendNotFound)", do: "message"},
		"condition beside listeners that are a number": {objects: "apiVersion: acme.com/v1\nkind: Backup\n" +
			"metadata: {name: r, namespace: n}\nstatus: {listeners: 3, parents: [x], conditions: [{type: Ready, " +
			"status: 'False', reason: Why, message: because}]}", want: "is not Ready: because (Why)", do: "message"},
		"namespace": {objects: "kind: Namespace\nmetadata: {deletionTimestamp: '2026-01-01T00:09:00Z', " +
			"finalizers: [f]}\nstatus: {conditions: [{type: NamespaceContentRemaining, status: 'True', message: 'pods has 1'}]}",
			want: "waits for its finalizer f", shows: "pods has 1", do: "finalizer"},
		"namespace's content": {objects: "kind: Namespace\nmetadata: {deletionTimestamp: '2026-01-01T00:09:00Z'}\n" +
			"spec: {finalizers: [kubernetes]}\nstatus: {conditions: [{type: NamespaceDeletionDiscoveryFailure, " +
			"status: 'False', message: All good}, {type: NamespaceContentRemaining, status: 'True', " +
			"message: 'Some resources are remaining: backups.acme.com has 2 resource instances, " +
			"configmaps. has 1 resource instances'}, {type: NamespaceFinalizersRemaining, status: 'True', " +
			"message: 'Some content in the namespace has finalizers remaining: acme.com/keep in 3 resource instances'}]}",
			want: "Namespace p has been terminating for 60s: it still contains backups.acme.com (2), configmaps (1), " +
				"with the finalizer acme.com/keep.", shows: "condition NamespaceFinalizersRemaining",
			do: "kubectl get backups.acme.com,configmaps -n p"},
		"namespace's API": {objects: "kind: Namespace\nmetadata: {deletionTimestamp: '2026-01-01T00:09:00Z'}\n" +
			"status: {conditions: [{type: NamespaceDeletionDiscoveryFailure, status: 'True', " +
			"message: 'Discovery failed for some groups, 1 failing: metrics.acme.com/v1'}]}",
			want: "its content cannot be deleted: Discovery failed for some groups, 1 failing: metrics.acme.com/v1.",
			do:   "kubectl get apiservices"},
		"quota used up": {objects: "kind: ResourceQuota\nstatus: {hard: {pods: '2', services: '5'}, " +
			"used: {pods: '2', services: '1'}}", want: "ResourceQuota p is used up: pods (2 of 2); nothing",
			shows: "services: 1 of 5 used", do: "Raise spec.hard"},
		"webhook's Service": {objects: "kind: ValidatingWebhookConfiguration\n" +
			"webhooks: [{name: w.acme.com, clientConfig: {service: {namespace: default, name: gone}}}]",
			absent: client.Ref{Resource: client.Services, Namespace: "default", Name: "gone"},
			want: "The webhook w.acme.com does not answer, so that requests that it matches are refused: its Service gone " +
				"in namespace default does not exist.", do: "kubectl delete validatingwebhookconfiguration/p"},
		"webhook ignored": {objects: "kind: MutatingWebhookConfiguration\n" +
			"webhooks: [{name: w.acme.com, failurePolicy: Ignore, clientConfig: {service: {namespace: default, name: p}}}]\n" +
			"---\n" + service, want: "admitted without it (failurePolicy: Ignore): Service p has no endpoints",
			do: "spec.selector"},
		"conversion": {objects: "kind: CustomResourceDefinition\n" +
			"spec: {conversion: {strategy: Webhook, webhook: {clientConfig: {service: {namespace: default, name: gone}}}}}",
			absent: client.Ref{Resource: client.Services, Namespace: "default", Name: "gone"},
			want: "CustomResourceDefinition p cannot convert objects between its versions, " +
				"because its conversion webhook does not answer: its Service gone in namespace default does not exist.",
			do: "Start the webhook's Service"},
		"request waits": {objects: "kind: CertificateSigningRequest\nspec: {signerName: acme.com/s, username: joe}",
			want: "waits until somebody approves or denies it", shows: "username: joe", do: "kubectl certificate approve p"},
		"request's subject": {objects: "kind: CertificateSigningRequest\nspec: {signerName: acme.com/s, request: " +
			signingRequest + "}", want: "waits", shows: "subject: CN=joe,O=dev", do: "approve"},
		"request's names": {objects: "kind: CertificateSigningRequest\n" +
			"spec: {signerName: acme.com/s, usages: [client auth], request: " + signingRequest + "}", want: "waits",
			shows: "names: box.example, 192.0.2.7", do: "approve"},
		"request denied": {objects: "kind: CertificateSigningRequest\n" +
			"status: {conditions: [{type: Denied, status: 'True', message: never}]}", want: "was denied: never",
			do: "create it again"},
		"request unsigned": {objects: "kind: CertificateSigningRequest\nspec: {signerName: acme.com/s}\n" +
			"status: {conditions: [{type: Approved, status: 'True'}]}", want: "the signer acme.com/s has not issued",
			do: "Start the program"},
		"request failed": {objects: "kind: CertificateSigningRequest\n" +
			"status: {conditions: [{type: Approved, status: 'True'}, {type: Failed, status: 'True', reason: Bad, " +
			"message: no key}]}", want: "has failed: no key", do: "Correct"},
		"request issued": {objects: "kind: CertificateSigningRequest\n" +
			"status: {conditions: [{type: Approved, status: 'True'}], certificate: eA==}", want: "its certificate is issued"},
		"warning of a kind": {objects: backup("2026-01-01T00:09:00Z"), want: "The last warning about Backup p says: no disk",
			shows: "event Failed", do: "Fix"},
		"warning before it was Ready": {objects: backup("2026-01-01T00:09:40Z"),
			want: "Nothing is known to be wrong with Backup p", shows: "event Failed"},
		"nothing wrong": {objects: "kind: ConfigMap", want: "Nothing is known to be wrong with ConfigMap p"},
	}
}

// signingRequest asks for a certificate of CN=joe, O=dev, with a name and an address.
const signingRequest = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlJQkJUQ0JyUUlCQURBY01Rd3dDZ1lEVlFRS0RBTmtaWFl4RERBS0JnTlZCQU1NQTJwdlpUQlpNQk1HQnlxRwpTTTQ5QWdFR0NDcUdTTTQ5QXdFSEEwSUFCQ0ZnUENiNy9pa0tXWUhURGJBSEVlU0FuT2NlYS9mUjNCMVpWR1ZxCjd1MHI1bFhrREduRXFpQ2tHS2JFSHlxSzVkZjNLb3piR0xqVUppN1RjM1lpQkxLZ0x6QXRCZ2txaGtpRzl3MEIKQ1E0eElEQWVNQndHQTFVZEVRUVZNQk9DQzJKdmVDNWxlR0Z0Y0d4bGh3VEFBQUlITUFvR0NDcUdTTTQ5QkFNQwpBMGNBTUVRQ0lBM3A5bTAvWkkvb2FvRWhuUEwzN0dkaDdVdG13VWpXVmRoWXJTRG9rUTg3QWlBa1doQjJFWDd6ClEvakNwa3dCQUs1Q1hDcFdjS2dNSjV3QjdIendKQXRyQVE9PQotLS0tLUVORCBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K"

func TestSituations(t *testing.T) {
	t.Parallel()
	for name, s := range situations() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := parsed(t, s.objects)
			if s.log != "" {
				f.Logs = map[string]string{"p/c": s.log, "p/i": s.log}
			}
			f.Absent, f.Closed = []client.Ref{s.absent}, []string{s.closed}
			a := why.Of(f)
			if !strings.Contains(a.Sentence, s.want) {
				t.Errorf("got %q, want %q", a.Sentence, s.want)
			}
			if evidence := strings.Join(a.Evidence, "\n"); !strings.Contains(evidence, s.shows) {
				t.Errorf("evidence %q, want %q", evidence, s.shows)
			}
			if !strings.Contains(a.Do, s.do) || s.do == "" && a.Do != "" {
				t.Errorf("to do: %q, want %q", a.Do, s.do)
			}
			if !strings.HasSuffix(a.Sentence, ".") || strings.HasSuffix(a.Sentence, "..") || a.Evidence == nil {
				t.Errorf("got %+v", a)
			}
		})
	}
}

// The starts of a CronJob are those that its controller finds, in its time zone; nothing starts while it is suspended.
func TestStarts(t *testing.T) {
	for spec, want := range map[string]string{
		"schedule: '0 3 * * *', timeZone: Etc/UTC": "01T03:00:00Z 02T03:00:00Z 03T03:00:00Z 04T03:00:00Z 05T03:00:00Z",
		"schedule: '*/30 22-23 * * FRI', timeZone: Asia/Tokyo": "02T13:00:00Z 02T13:30:00Z 02T14:00:00Z 02T14:30:00Z " +
			"09T13:00:00Z",
		"schedule: '@weekly', timeZone: Etc/UTC": "04T00:00:00Z 11T00:00:00Z 18T00:00:00Z 25T00:00:00Z 01T00:00:00Z",
		"schedule: '@every 7m'":                  "01T00:12:00Z 01T00:19:00Z 01T00:26:00Z 01T00:33:00Z 01T00:40:00Z",
		"schedule: '0 0 30 2 *'":                 "", // no date matches
		"schedule: 'nonsense'":                   "",
		"schedule: '@daily', suspend: true":      "",
	} {
		f := parsed(t, "kind: CronJob\nmetadata: {creationTimestamp: '2026-01-01T00:05:00Z'}\nspec: {"+spec+"}")
		var got []string
		for _, at := range why.Of(f).Starts {
			got = append(got, at.Format("02T15:04:05Z07:00"))
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%s: got %s\nwant %s", spec, got, want)
		}
	}
}

// parsed decodes the documents of a situation. An object without a name is p; each has the UID kind-name.
func parsed(t *testing.T, objects string) facts.Facts {
	t.Helper()
	f := facts.Facts{Now: now}
	for i, text := range strings.Split(objects, "\n---\n") {
		obj := decode(t, text)
		if obj.GetName() == "" {
			obj.SetName("p")
		}
		kind := obj.GetObjectKind().GroupVersionKind().Kind
		obj.SetUID(types.UID(kind + "-" + obj.GetName()))
		if kind != "Node" && kind != "CSINode" && kind != "CSIDriver" && kind != "VolumeAttachment" &&
			kind != "PersistentVolume" && kind != "StorageClass" && kind != "IngressClass" && kind != "Namespace" &&
			kind != "ValidatingWebhookConfiguration" && kind != "MutatingWebhookConfiguration" &&
			kind != "CustomResourceDefinition" && kind != "Lease" {
			obj.SetNamespace(metav1.NamespaceDefault)
		}
		switch o := obj.(type) {
		case *corev1.Event:
			f.Events = append(f.Events, o)
			continue
		case *corev1.Pod:
			if o.Spec.RestartPolicy == "" {
				o.Spec.RestartPolicy = corev1.RestartPolicyAlways
			}
			_, ofPod := f.Object.(*corev1.Pod)
			if ofPod || strings.HasPrefix(o.Name, "d-") { // a pod of a driver
				f.Others = append(f.Others, o)
			} else {
				f.Pods = append(f.Pods, o)
			}
		default:
			if i > 0 {
				f.Others = append(f.Others, obj)
			}
		}
		if i == 0 {
			f.Object = obj
		}
	}
	return f
}

func decode(t *testing.T, text string) client.Object {
	t.Helper()
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal([]byte(text), &kind); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	types := map[string]client.Object{
		"Pod": &corev1.Pod{}, "Node": &corev1.Node{}, "Event": &corev1.Event{}, "Service": &corev1.Service{},
		"ConfigMap": &corev1.ConfigMap{}, "Namespace": &corev1.Namespace{},
		"PersistentVolumeClaim": &corev1.PersistentVolumeClaim{}, "StorageClass": &storagev1.StorageClass{},
		"Deployment": &appsv1.Deployment{}, "ReplicaSet": &appsv1.ReplicaSet{}, "StatefulSet": &appsv1.StatefulSet{},
		"DaemonSet": &appsv1.DaemonSet{},
		"Job":       &batchv1.Job{}, "CronJob": &batchv1.CronJob{}, "EndpointSlice": &discoveryv1.EndpointSlice{},
		"Ingress": &networkingv1.Ingress{}, "IngressClass": &networkingv1.IngressClass{},
		"NetworkPolicy": &networkingv1.NetworkPolicy{}, "HorizontalPodAutoscaler": &autoscalingv2.HorizontalPodAutoscaler{},
		"PodDisruptionBudget":       &policyv1.PodDisruptionBudget{},
		"CertificateSigningRequest": &certificatesv1.CertificateSigningRequest{}, "ResourceQuota": &corev1.ResourceQuota{},
		"RoleBinding":                    &rbacv1.RoleBinding{},
		"ValidatingWebhookConfiguration": &admissionregistrationv1.ValidatingWebhookConfiguration{},
		"MutatingWebhookConfiguration":   &admissionregistrationv1.MutatingWebhookConfiguration{},
		"CustomResourceDefinition":       &crd.Definition{}, "PersistentVolume": &corev1.PersistentVolume{},
		"CSINode": &storagev1.CSINode{}, "CSIDriver": &storagev1.CSIDriver{},
		"VolumeAttachment": &storagev1.VolumeAttachment{}, "Lease": &coordinationv1.Lease{},
		"Backup": &unstructured.Unstructured{},
	}
	obj := types[kind.Kind]
	if obj == nil {
		t.Fatalf("no type for %q", kind.Kind)
	}
	if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return obj
}
