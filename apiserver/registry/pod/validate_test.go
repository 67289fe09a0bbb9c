package pod

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"monopod/apiserver/registry/kind/kindtest"
)

// parsePod decodes a pod whose spec is YAML, and sets its defaults as a creation does.
func parsePod(t testing.TB, spec string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	pod.Name, pod.Namespace = "web", "default"
	if err := yaml.UnmarshalStrict([]byte(spec), &pod.Spec); err != nil {
		t.Fatalf("spec: %v", err)
	}
	podPrepare(pod, nil, "")
	podDefault(pod)
	return pod
}

const goodPod = `
restartPolicy: OnFailure
nodeSelector: {disk: ssd}
hostAliases: [{ip: 10.0.0.1, hostnames: [db.local]}]
dnsPolicy: None
dnsConfig: {nameservers: [1.1.1.1], searches: [a.example., _x.y], options: [{name: ndots, value: "2"}]}
securityContext: {runAsUser: 1000, fsGroup: 2000, sysctls: [{name: net.ipv4.tcp_syncookies, value: "1"}], seccompProfile: {type: RuntimeDefault}}
tolerations: [{operator: Exists}, {key: a/b, value: c, effect: NoSchedule}]
topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, minDomains: 2}]
readinessGates: [{conditionType: example.com/ready}]
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
      - matchExpressions: [{key: a, operator: In, values: [b]}, {key: c, operator: Gt, values: ["3"]}]
        matchFields: [{key: metadata.name, operator: In, values: [n1]}]
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
    - {weight: 100, podAffinityTerm: {topologyKey: zone, labelSelector: {matchLabels: {a: b}}}}
volumes:
- {name: none}
- {name: scratch, emptyDir: {}}
- {name: host, hostPath: {path: /var, type: Directory}}
- {name: conf, configMap: {name: c, items: [{key: a, path: b/c}]}}
- {name: keys, secret: {secretName: s, defaultMode: 0400}}
- name: all
  projected:
    sources:
    - {serviceAccountToken: {path: token}}
    - {downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
    - {configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}}
initContainers:
- {name: wait, image: busybox}
- {name: proxy, image: proxy:1, restartPolicy: Always, readinessProbe: {tcpSocket: {port: 80}}}
containers:
- name: main
  image: registry.local:5000/main:1
  ports: [{name: http, containerPort: 80, hostPort: 8080}, {name: dns, containerPort: 53, protocol: UDP}]
  env:
  - {name: A, value: b}
  - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
  - {name: L, valueFrom: {fieldRef: {fieldPath: "metadata.labels['app']"}}}
  - {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}}
  - {name: K, valueFrom: {secretKeyRef: {name: s, key: k}}}
  - {name: F, valueFrom: {fileKeyRef: {volumeName: scratch, path: a/b.env, key: K, optional: true}}}
  envFrom: [{prefix: P_, configMapRef: {name: c}}]
  resources: {limits: {cpu: 1, memory: 1Gi, example.com/gpu: 1, hugepages-2Mi: 4Mi}, requests: {cpu: 500m}}
  volumeMounts: [{name: none, mountPath: /none}, {name: conf, mountPath: /conf, subPath: b/c, readOnly: true, recursiveReadOnly: Enabled}]
  livenessProbe: {httpGet: {port: http, httpHeaders: [{name: X-A, value: b}]}}
  startupProbe: {exec: {command: ["true"]}}
  readinessProbe: {grpc: {port: 90}, successThreshold: 2}
  lifecycle: {preStop: {sleep: {seconds: 5}}, postStart: {exec: {command: ["true"]}}}
  securityContext: {capabilities: {drop: [ALL]}, allowPrivilegeEscalation: false}
`

func TestPodGood(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]string{
		"everything":   goodPod,
		"smallest":     "containers: [{name: a, image: b}]",
		"host network": "{hostNetwork: true, containers: [{name: a, image: b, ports: [{containerPort: 80}]}]}",
		"gated":        "{schedulingGates: [{name: example.com/wait}], containers: [{name: a, image: b}]}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kindtest.WantErrors(t, podValidate(parsePod(t, spec), nil, ""))
		})
	}
}

func TestPodBad(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ spec, want string }{
		{`{}`, "spec.containers: Required value"},
		// containers
		{`containers: [{}]`, "spec.containers[0].name: Required value\nspec.containers[0].image: Required value"},
		{`containers: [{name: A_b, image: b}]`, "spec.containers[0].name: Invalid value"},
		{`containers: [{name: a, image: " b"}]`, "spec.containers[0].image: Invalid value"},
		{`containers: [{name: a, image: b}, {name: a, image: b}]`, "spec.containers[1].name: Duplicate value"},
		{`{initContainers: [{name: a, image: b}], containers: [{name: a, image: b}]}`,
			"spec.initContainers[0].name: Duplicate value"},
		{`containers: [{name: a, image: b, imagePullPolicy: Often, terminationMessagePolicy: None}]`,
			"spec.containers[0].terminationMessagePolicy: Unsupported value\n" +
				"spec.containers[0].imagePullPolicy: Unsupported value"},
		{`{initContainers: [{name: i, image: b, livenessProbe: {tcpSocket: {port: 1}}, lifecycle: {}}], ` +
			`containers: [{name: a, image: b}]}`,
			"spec.initContainers[0].lifecycle: Forbidden\nspec.initContainers[0].livenessProbe: Forbidden"},
		{`{initContainers: [{name: i, image: b, restartPolicy: Perhaps}], containers: [{name: a, image: b}]}`,
			"spec.initContainers[0].restartPolicy: Unsupported value"},
		{`{ephemeralContainers: [{name: e, image: b}], containers: [{name: a, image: b}]}`,
			"spec.ephemeralContainers: Forbidden"},
		// ports
		{`containers: [{name: a, image: b, ports: [{}]}]`, "spec.containers[0].ports[0].containerPort: Required value"},
		{`containers: [{name: a, image: b, ports: [{containerPort: 70000, protocol: ICMP, hostIP: x, name: "1"}]}]`,
			"spec.containers[0].ports[0].name: Invalid value\nspec.containers[0].ports[0].containerPort: Invalid value\n" +
				"spec.containers[0].ports[0].hostIP: Invalid value\nspec.containers[0].ports[0].protocol: Unsupported value"},
		{`containers: [{name: a, image: b, ports: [{name: x, containerPort: 1}, {name: x, containerPort: 2}]}]`,
			"spec.containers[0].ports[1].name: Duplicate value"},
		{`containers: [{name: a, image: b, ports: [{containerPort: 1, hostPort: 9}]}, {name: c, image: b, ` +
			`ports: [{containerPort: 2, hostPort: 9}]}]`, "spec.containers[1].ports[0].hostPort: Duplicate value"},
		{`{hostNetwork: true, containers: [{name: a, image: b, ports: [{containerPort: 1, hostPort: 9}]}]}`,
			"spec.containers[0].ports[0].containerPort: Invalid value"},
		// env
		{`containers: [{name: a, image: b, env: [{value: x}, {name: "a=b"}]}]`,
			"spec.containers[0].env[0].name: Required value\nspec.containers[0].env[1].name: Invalid value"},
		{`containers: [{name: a, image: b, env: [{name: x, valueFrom: {}}]}]`,
			"spec.containers[0].env[0].valueFrom: Invalid value"},
		{`containers: [{name: a, image: b, env: [{name: x, value: y, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}]`,
			"spec.containers[0].env[0].valueFrom: Invalid value"},
		{`containers: [{name: a, image: b, env: [{name: x, valueFrom: {fieldRef: {fieldPath: spec.tolerations}}}]}]`,
			"spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value"},
		{`containers: [{name: a, image: b, env: [{name: x, valueFrom: {resourceFieldRef: {resource: limits.gpu}}}]}]`,
			"spec.containers[0].env[0].valueFrom.resourceFieldRef.resource: Unsupported value"},
		{`containers: [{name: a, image: b, env: [{name: x, valueFrom: {configMapKeyRef: {name: c}}}]}]`,
			"spec.containers[0].env[0].valueFrom.configMapKeyRef.key: Required value"},
		{`containers: [{name: a, image: b, env: [{name: x, valueFrom: {fileKeyRef: {}}}]}]`,
			"spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName: Required value\n" +
				"spec.containers[0].env[0].valueFrom.fileKeyRef.path: Required value\n" +
				"spec.containers[0].env[0].valueFrom.fileKeyRef.key: Required value"},
		{`{volumes: [{name: v, hostPath: {path: /v}}], containers: [{name: a, image: b, env: [{name: x, ` +
			`valueFrom: {fileKeyRef: {volumeName: v, path: ../f, key: a=b}}}]}]}`,
			"spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName: Not found\n" +
				"spec.containers[0].env[0].valueFrom.fileKeyRef.path: Invalid value\n" +
				"spec.containers[0].env[0].valueFrom.fileKeyRef.key: Invalid value"},
		{`containers: [{name: a, image: b, envFrom: [{}]}]`, "spec.containers[0].envFrom: Invalid value"},
		// resources
		{`containers: [{name: a, image: b, resources: {requests: {cpu: 2}, limits: {cpu: 1}}}]`,
			"spec.containers[0].resources.requests: Invalid value"},
		{`containers: [{name: a, image: b, resources: {limits: {memory: -1}}}]`,
			"spec.containers[0].resources.limits[memory]: Invalid value\n" +
				"spec.containers[0].resources.requests[memory]: Invalid value"},
		{`containers: [{name: a, image: b, resources: {limits: {gpus: 1}}}]`,
			"spec.containers[0].resources.limits[gpus]: Invalid value\nspec.containers[0].resources.limits[gpus]: Invalid " +
				"value\nspec.containers[0].resources.requests[gpus]: Invalid value\n" +
				"spec.containers[0].resources.requests[gpus]: Invalid value"},
		{`containers: [{name: a, image: b, resources: {limits: {hugepages-2Mi: 2Mi}}}]`,
			"spec.containers[0].resources: Forbidden"},
		{`containers: [{name: a, image: b, resources: {requests: {example.com/gpu: 1}}}]`,
			"spec.containers[0].resources.limits: Required value"},
		{`containers: [{name: a, image: b, resources: {limits: {example.com/gpu: 500m}}}]`,
			"spec.containers[0].resources.limits[example.com/gpu]: Invalid value\n" +
				"spec.containers[0].resources.requests[example.com/gpu]: Invalid value"},
		{`containers: [{name: a, image: b, resources: {claims: [{name: x}]}}]`,
			"spec.containers[0].resources.claims[0].name: Not found"},
		{`{overhead: {cpu: -1}, containers: [{name: a, image: b}]}`, "spec.overhead[cpu]: Invalid value"},
		{`{resources: {limits: {ephemeral-storage: 1}}, containers: [{name: a, image: b}]}`,
			"spec.resources.limits[ephemeral-storage]: Unsupported value"},
		// probes and hooks
		{`containers: [{name: a, image: b, livenessProbe: {}}]`, "spec.containers[0].livenessProbe: Required value"},
		{`containers: [{name: a, image: b, livenessProbe: {exec: {command: [x]}, tcpSocket: {port: 1}}}]`,
			"spec.containers[0].livenessProbe.tcpSocket: Forbidden"},
		{`containers: [{name: a, image: b, livenessProbe: {tcpSocket: {port: 0}, successThreshold: 2, periodSeconds: -1}}]`,
			"spec.containers[0].livenessProbe.tcpSocket.port: Invalid value\n" +
				"spec.containers[0].livenessProbe.periodSeconds: Invalid value\n" +
				"spec.containers[0].livenessProbe.successThreshold: Invalid value"},
		{`containers: [{name: a, image: b, readinessProbe: {exec: {}, terminationGracePeriodSeconds: 1}}]`,
			"spec.containers[0].readinessProbe.exec.command: Required value\n" +
				"spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value"},
		{`containers: [{name: a, image: b, readinessProbe: {httpGet: {port: 80, scheme: FTP, httpHeaders: [{name: "a b"}]}}}]`,
			"spec.containers[0].readinessProbe.httpGet.scheme: Unsupported value\n" +
				"spec.containers[0].readinessProbe.httpGet.httpHeaders[0].name: Invalid value"},
		{`containers: [{name: a, image: b, lifecycle: {preStop: {sleep: {seconds: 60}}, postStart: {}}}]`,
			"spec.containers[0].lifecycle.postStart: Required value\nspec.containers[0].lifecycle.preStop.sleep: Invalid value"},
		// volumes
		{`{volumes: [{}, {name: v}, {name: v}], containers: [{name: a, image: b}]}`,
			"spec.volumes[0].name: Required value\nspec.volumes[2].name: Duplicate value"},
		{`{volumes: [{name: v, emptyDir: {}, hostPath: {path: /}}], containers: [{name: a, image: b}]}`,
			"spec.volumes[0].hostPath: Forbidden"},
		{`{volumes: [{name: v, hostPath: {path: /a/../b, type: Thing}}], containers: [{name: a, image: b}]}`,
			"spec.volumes[0].hostPath.path: Invalid value\nspec.volumes[0].hostPath.type: Unsupported value"},
		{`{volumes: [{name: v, configMap: {items: [{key: k, path: /abs}], defaultMode: 01000}}], containers: [{name: a, ` +
			`image: b}]}`,
			"spec.volumes[0].configMap.name: Required value\nspec.volumes[0].configMap.defaultMode: Invalid value\n" +
				"spec.volumes[0].configMap.items[0].path: Invalid value"},
		{`{volumes: [{name: v, emptyDir: {sizeLimit: -1}}], containers: [{name: a, image: b}]}`,
			"spec.volumes[0].emptyDir.sizeLimit: Forbidden"},
		{`{volumes: [{name: v, projected: {sources: [{}, {serviceAccountToken: {path: t, expirationSeconds: 1}}, ` +
			`{secret: {name: s, items: [{key: k, path: t}]}}]}}], containers: [{name: a, image: b}]}`,
			"spec.volumes[0].projected.sources[0]: Required value\n" +
				"spec.volumes[0].projected.sources[1].serviceAccountToken.expirationSeconds: Invalid value\n" +
				"spec.volumes[0].projected.sources[2]: Invalid value"},
		// mounts
		{`containers: [{name: a, image: b, volumeMounts: [{name: v, mountPath: /x}]}]`,
			"spec.containers[0].volumeMounts[0].name: Not found"},
		{`{volumes: [{name: v}], containers: [{name: a, image: b, volumeMounts: [{name: v, mountPath: /x}, {name: v, ` +
			`mountPath: /x}]}]}`, "spec.containers[0].volumeMounts[1].mountPath: Invalid value"},
		{`{volumes: [{name: v}], containers: [{name: a, image: b, volumeMounts: [{name: v, mountPath: "/x:y", ` +
			`subPath: ../z}]}]}`,
			"spec.containers[0].volumeMounts[0].mountPath: Invalid value\n" +
				"spec.containers[0].volumeMounts[0].subPath: Invalid value"},
		{`{volumes: [{name: v}], containers: [{name: a, image: b, volumeMounts: [{name: v, mountPath: /x, ` +
			`mountPropagation: Bidirectional, recursiveReadOnly: Enabled}]}]}`,
			"spec.containers[0].volumeMounts[0].recursiveReadOnly: Forbidden\n" +
				"spec.containers[0].volumeMounts[0].recursiveReadOnly: Forbidden\n" +
				"spec.containers[0].volumeMounts[0].mountPropagation: Forbidden"},
		{`{volumes: [{name: v}], containers: [{name: a, image: b, volumeDevices: [{name: v, devicePath: /dev/x}]}]}`,
			"spec.containers[0].volumeDevices[0].name: Invalid value"},
		// lifecycle and names
		{`{restartPolicy: Maybe, activeDeadlineSeconds: 0, containers: [{name: a, image: b}]}`,
			"spec.restartPolicy: Unsupported value\nspec.activeDeadlineSeconds: Invalid value"},
		{`{terminationGracePeriodSeconds: -1, schedulerName: "My Scheduler/1", containers: [{name: a, image: b}]}`, ""},
		{`{readinessGates: [{conditionType: "a b"}], containers: [{name: a, image: b}]}`,
			"spec.readinessGates[0].conditionType: Invalid value"},
		{`{serviceAccountName: A_, nodeName: B_, hostname: c.d, subdomain: E, priorityClassName: F, runtimeClassName: G, ` +
			`containers: [{name: a, image: b}]}`,
			"spec.serviceAccountName: Invalid value\nspec.nodeName: Invalid value\nspec.hostname: Invalid value\n" +
				"spec.subdomain: Invalid value\nspec.priorityClassName: Invalid value\nspec.runtimeClassName: Invalid value"},
		// dns
		{`{dnsPolicy: None, containers: [{name: a, image: b}]}`, "spec.dnsConfig: Required value"},
		{`{dnsPolicy: Some, dnsConfig: {nameservers: [a, 1.1.1.1, 1.1.1.1, 1.1.1.1], options: [{value: x}]}, ` +
			`containers: [{name: a, image: b}]}`,
			"spec.dnsPolicy: Unsupported value\nspec.dnsConfig.nameservers: Invalid value\n" +
				"spec.dnsConfig.nameservers[0]: Invalid value\nspec.dnsConfig.options[0]: Required value"},
		{`{hostAliases: [{ip: x, hostnames: [A_]}], containers: [{name: a, image: b}]}`,
			"spec.hostAliases[0].ip: Invalid value\nspec.hostAliases[0].hostnames[0]: Invalid value"},
		// security
		{`{securityContext: {runAsUser: -1, fsGroup: -1, supplementalGroups: [-1], sysctls: [{}, {name: "A b"}, ` +
			`{name: a.b}, {name: a/b}]}, containers: [{name: a, image: b}]}`,
			"spec.securityContext.runAsUser: Invalid value\nspec.securityContext.fsGroup: Invalid value\n" +
				"spec.securityContext.supplementalGroups[0]: Invalid value\n" +
				"spec.securityContext.sysctls[0].name: Required value\nspec.securityContext.sysctls[1].name: Invalid value\n" +
				"spec.securityContext.sysctls[3].name: Duplicate value"},
		{`{hostNetwork: true, hostPID: true, hostUsers: false, shareProcessNamespace: true, containers: [{name: a, ` +
			`image: b}]}`,
			"spec.securityContext.shareProcessNamespace: Invalid value\nspec.securityContext.hostNetwork: Forbidden\n" +
				"spec.securityContext.hostPID: Forbidden"},
		{`containers: [{name: a, image: b, securityContext: {privileged: true, allowPrivilegeEscalation: false, ` +
			`seccompProfile: {type: Localhost}}}]`,
			"spec.containers[0].securityContext.seccompProfile.localhostProfile: Required value\n" +
				"spec.containers[0].securityContext: Invalid value"},
		// operating systems
		{`{os: {name: linux}, securityContext: {windowsOptions: {}}, containers: [{name: a, image: b, ` +
			`securityContext: {windowsOptions: {}}}]}`,
			"spec.securityContext.windowsOptions: Forbidden\nspec.containers[0].securityContext.windowsOptions: Forbidden"},
		{`{os: {name: windows}, hostPID: true, hostUsers: true, securityContext: {runAsUser: 1, windowsOptions: {}}, ` +
			`initContainers: [{name: i, image: b, securityContext: {privileged: true}}], containers: [{name: a, image: b, ` +
			`securityContext: {capabilities: {}, runAsNonRoot: true}}]}`,
			"spec.hostPID: Forbidden\nspec.hostUsers: Forbidden\nspec.securityContext.runAsUser: Forbidden\n" +
				"spec.containers[0].securityContext.capabilities: Forbidden\nspec.initContainers[0].securityContext.privileged: " +
				"Forbidden"},
		{`{securityContext: {seLinuxChangePolicy: Never}, containers: [{name: a, image: b}]}`,
			"spec.securityContext.seLinuxChangePolicy: Unsupported value"},
		// scheduling
		{`{nodeSelector: {"a b": c}, containers: [{name: a, image: b}]}`, "spec.nodeSelector: Invalid value"},
		{`{schedulingGates: [{name: x/y}, {name: x/y}], nodeName: n, containers: [{name: a, image: b}]}`,
			"spec.schedulingGates[1]: Duplicate value\nspec.nodeName: Forbidden"},
		{`{tolerations: [{value: x}, {key: k, operator: Exists, value: x}, {key: k, operator: Like}, {key: k, ` +
			`effect: Never, tolerationSeconds: 1}], containers: [{name: a, image: b}]}`,
			"spec.tolerations[0].operator: Invalid value\nspec.tolerations[1].operator: Invalid value\n" +
				"spec.tolerations[2].operator: Unsupported value\nspec.tolerations[3].effect: Invalid value\n" +
				"spec.tolerations[3].effect: Unsupported value"},
		{`{topologySpreadConstraints: [{whenUnsatisfiable: Hope}], containers: [{name: a, image: b}]}`,
			"spec.topologySpreadConstraints[0].maxSkew: Invalid value\n" +
				"spec.topologySpreadConstraints[0].topologyKey: Required value\n" +
				"spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value"},
		{`{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}, ` +
			`preferredDuringSchedulingIgnoredDuringExecution: [{weight: 0, preference: {matchExpressions: [{key: k, ` +
			`operator: In}]}}]}}, containers: [{name: a, image: b}]}`,
			"spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value\n" +
				"spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value\n" +
				"spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].values: Required value"},
		{`{affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: {matchExpressions: ` +
			`[{key: k, operator: Near}]}}]}}, containers: [{name: a, image: b}]}`,
			"spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector.matchExpressions[0].operator: Invalid value\nspec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Required value"},
	} {
		t.Run(c.spec, func(t *testing.T) {
			t.Parallel()
			kindtest.WantErrors(t, podValidate(parsePod(t, c.spec), nil, ""), c.want)
		})
	}
}

func TestPodAnnotations(t *testing.T) {
	t.Parallel()
	pod := parsePod(t, "containers: [{name: a, image: b}]")
	const armor = corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix
	pod.Annotations = map[string]string{corev1.PodDeletionCost: "+1", corev1.MirrorPodAnnotationKey: "x",
		armor + "a": "strict", armor + "b": "runtime/default"}
	kindtest.WantErrors(t, podValidate(pod, nil, ""),
		"metadata.annotations[kubernetes.io/config.mirror]: Invalid value",
		"metadata.annotations["+armor+"a]: Invalid value", "metadata.annotations["+armor+"b]: Invalid value",
		"metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value")
}
