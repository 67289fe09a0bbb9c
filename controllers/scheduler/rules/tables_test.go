package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/client"
	"monopod/controllers/scheduler/cluster"
)

// sketch builds a cluster of nodes: "a zone=z1 disk=ssd: x y" is the node a with labels, a pod of the app x and one of
// the app y.
func sketch(lines ...string) *cluster.Cluster {
	all := cluster.New()
	for _, line := range lines {
		left, right, _ := strings.Cut(line, ":")
		fields := strings.Fields(left)
		name := fields[0]
		all.SetNode(testNode(func(n *corev1.Node) {
			n.Name, n.Labels = name, map[string]string{}
			n.Status.Allocatable = list("cpu", "10", "memory", "10Gi", "pods", "100")
			for _, label := range fields[1:] {
				key, value, _ := strings.Cut(label, "=")
				n.Labels[key] = value
			}
		}))
		for i, of := range strings.Fields(right) {
			all.Add(cluster.NewPod(testPod(named(fmt.Sprint(name, i)), app(of))), name)
		}
	}
	return all
}

// fitting returns the names of the nodes on which a pod fits, and the reasons of the other nodes.
func fitting(all *cluster.Cluster, pod *corev1.Pod) (names, why string) {
	chooser := Chooser{Rules: All()}
	c := NewCycle(all, cluster.NewPod(pod))
	out := Outcome{Nodes: len(all.Nodes())}
	var fit []string
	for _, n := range chooser.filter(c, nil, &out) {
		fit = append(fit, n.Name)
	}
	slices.Sort(fit)
	reasons := map[string]bool{}
	for _, r := range out.Refused {
		for _, reason := range r.Reasons {
			reasons[fmt.Sprintf("%s final=%t", reason, r.Final)] = true
		}
	}
	var texts []string
	for reason := range reasons {
		texts = append(texts, reason)
	}
	slices.Sort(texts)
	return strings.Join(fit, " "), strings.Join(texts, ", ")
}

func byApp(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
}

func spreading(c corev1.TopologySpreadConstraint) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		if c.WhenUnsatisfiable == "" {
			c.WhenUnsatisfiable = corev1.DoNotSchedule
		}
		if c.MaxSkew == 0 {
			c.MaxSkew = 1
		}
		if c.TopologyKey == "" {
			c.TopologyKey = "zone"
		}
		c.LabelSelector = byApp("x")
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
	}
}

func selecting(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{key: value} }
}

func TestPodTopologySpread(t *testing.T) {
	t.Parallel()
	skewed := whySkewed + " final=false"
	honor, ignore := corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore
	taintA := func(all *cluster.Cluster) {
		n := all.Node("a").DeepCopy()
		tainted("k", "", corev1.TaintEffectNoSchedule)(n)
		all.SetNode(n)
	}
	for name, c := range map[string]struct {
		nodes  []string
		change func(*cluster.Cluster)
		pod    *corev1.Pod
		fit    string
		why    string
	}{
		"even": {nodes: []string{"a zone=1: x", "b zone=2: x"},
			pod: testPod(app("x"), spreading(corev1.TopologySpreadConstraint{})), fit: "a b"},
		"the emptier zone": {nodes: []string{"a zone=1: x x", "b zone=2: x"},
			pod: testPod(app("x"), spreading(corev1.TopologySpreadConstraint{})), fit: "b", why: skewed},
		"nodes of a zone count together": {nodes: []string{"a zone=1: x", "b zone=1: x", "c zone=2: x"},
			pod: testPod(app("x"), spreading(corev1.TopologySpreadConstraint{})), fit: "c", why: skewed},
		"a pod that does not count itself": {nodes: []string{"a zone=1: x", "b zone=2"},
			pod: testPod(app("y"), spreading(corev1.TopologySpreadConstraint{})), fit: "a b"},
		"maxSkew": {nodes: []string{"a zone=1: x x", "b zone=2: x"},
			pod: testPod(app("x"), spreading(corev1.TopologySpreadConstraint{MaxSkew: 2})), fit: "a b"},
		"without the label": {nodes: []string{"a zone=1", "b"},
			pod: testPod(app("x"), spreading(corev1.TopologySpreadConstraint{})), fit: "a", why: whyNoneLabel + " final=true"},
		"other pods do not count": {nodes: []string{"a zone=1: y y y", "b zone=2"},
			pod: testPod(app("x"), spreading(corev1.TopologySpreadConstraint{})), fit: "a b"},
		"pods of other namespaces do not count": {nodes: []string{"a zone=1: x x x", "b zone=2"},
			pod: testPod(app("x"), elsewhere, spreading(corev1.TopologySpreadConstraint{})), fit: "a b"},
		"only preferred": {nodes: []string{"a zone=1: x x x", "b zone=2"},
			pod: testPod(app("x"), spreading(corev1.TopologySpreadConstraint{WhenUnsatisfiable: corev1.ScheduleAnyway})),
			fit: "a b"},
		"minDomains not reached": {nodes: []string{"a zone=1: x", "b zone=2: x"},
			pod: testPod(app("x"), spreading(corev1.TopologySpreadConstraint{MinDomains: new(int32(3))})), why: skewed},
		"minDomains reached": {nodes: []string{"a zone=1: x", "b zone=2: x"},
			pod: testPod(app("x"), spreading(corev1.TopologySpreadConstraint{MinDomains: new(int32(2))})), fit: "a b"},
		"nodes that the selector excludes do not count": {nodes: []string{"a zone=1 disk=ssd: x", "b zone=2 disk=hdd"},
			pod: testPod(app("x"), selecting("disk", "ssd"), spreading(corev1.TopologySpreadConstraint{})), fit: "a",
			why: "node(s) didn't match Pod's node affinity/selector final=true"},
		"unless nodeAffinityPolicy is Ignore": {nodes: []string{"a zone=1 disk=ssd: x", "b zone=2 disk=hdd"},
			pod: testPod(app("x"), selecting("disk", "ssd"),
				spreading(corev1.TopologySpreadConstraint{NodeAffinityPolicy: &ignore})),
			why: "node(s) didn't match Pod's node affinity/selector final=true, " + skewed},
		"tainted nodes count": {nodes: []string{"a zone=1", "b zone=2: x"}, change: taintA,
			pod: testPod(app("x"), spreading(corev1.TopologySpreadConstraint{})),
			why: skewed + ", node(s) had untolerated taint(s) final=true"},
		"unless nodeTaintsPolicy is Honor": {nodes: []string{"a zone=1", "b zone=2: x"}, change: taintA,
			pod: testPod(app("x"), spreading(corev1.TopologySpreadConstraint{NodeTaintsPolicy: &honor})), fit: "b",
			why: "node(s) had untolerated taint(s) final=true"},
		"pods that are being deleted do not count": {nodes: []string{"a zone=1", "b zone=2"},
			change: func(all *cluster.Cluster) {
				all.Add(cluster.NewPod(testPod(named("leaving"), app("x"),
					func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) })), "a")
			}, pod: testPod(app("x"), spreading(corev1.TopologySpreadConstraint{})), fit: "a b"},
		"two constraints": {nodes: []string{"a zone=1 host=a: x", "b zone=1 host=b", "c zone=2 host=c: x"},
			pod: testPod(app("x"), spreading(corev1.TopologySpreadConstraint{}),
				spreading(corev1.TopologySpreadConstraint{TopologyKey: "host"})), fit: "b", why: skewed},
	} {
		t.Run(name, func(t *testing.T) {
			all := sketch(c.nodes...)
			if c.change != nil {
				c.change(all)
			}
			if fit, why := fitting(all, c.pod); fit != c.fit || why != c.why {
				t.Errorf("fits on %q, %q; want %q, %q", fit, why, c.fit, c.why)
			}
		})
	}
}

// term returns an affinity term for the pods of an app, over zones.
func term(name string, change ...func(*corev1.PodAffinityTerm)) corev1.PodAffinityTerm {
	t := corev1.PodAffinityTerm{TopologyKey: "zone", LabelSelector: byApp(name)}
	for _, f := range change {
		f(&t)
	}
	return t
}

func near(terms ...corev1.PodAffinityTerm) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
	}
}

func far(terms ...corev1.PodAffinityTerm) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
	}
}

func inNamespaces(names ...string) func(*corev1.PodAffinityTerm) {
	return func(t *corev1.PodAffinityTerm) { t.Namespaces = names }
}

func inTeam(team string) func(*corev1.PodAffinityTerm) {
	return func(t *corev1.PodAffinityTerm) {
		t.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": team}}
	}
}

func TestInterPodAffinity(t *testing.T) {
	t.Parallel()
	const attracted, repelled, repels = "node(s) didn't match pod affinity rules final=true",
		"node(s) didn't match pod anti-affinity rules final=false",
		"node(s) didn't satisfy existing pods anti-affinity rules final=false"
	two := []string{"a zone=1: x", "b zone=1", "c zone=2: y"}
	for name, c := range map[string]struct {
		nodes []string
		there *corev1.Pod // an additional pod on a
		pod   *corev1.Pod
		fit   string
		why   string
	}{
		"the whole domain": {nodes: two, pod: testPod(near(term("x"))), fit: "a b", why: attracted},
		"no pods":          {nodes: two, pod: testPod(near(term("z"))), why: attracted},
		"itself":           {nodes: two, pod: testPod(app("z"), near(term("z"))), fit: "a b c"},
		"all terms": {nodes: two,
			pod: testPod(near(term("x"), term("x", func(t *corev1.PodAffinityTerm) { t.TopologyKey = "host" }))),
			why: attracted},
		"one pod matches all terms": {nodes: []string{"a zone=1 host=a: x", "b zone=1 host=b"},
			pod: testPod(near(term("x"), term("x", func(t *corev1.PodAffinityTerm) { t.TopologyKey = "host" }))), fit: "a",
			why: attracted},
		"no pod matches all terms": {nodes: []string{"a zone=1: x y"}, pod: testPod(near(term("x"), term("y"))),
			why: attracted},
		"anti":                   {nodes: two, pod: testPod(far(term("x"))), fit: "c", why: repelled},
		"anti without the label": {nodes: []string{"a: x", "b"}, pod: testPod(far(term("x"))), fit: "a b"},
		"anti of a running pod": {nodes: []string{"a zone=1", "b zone=1", "c zone=2"}, there: testPod(named("t"),
			far(term("me"))), pod: testPod(app("me")), fit: "c", why: repels},
		"other namespace": {nodes: two, pod: testPod(elsewhere, near(term("x"))), why: attracted},
		"by namespaces": {nodes: two, pod: testPod(elsewhere, near(term("x", inNamespaces("default")))),
			fit: "a b", why: attracted},
		"by namespaceSelector": {nodes: two, pod: testPod(elsewhere, near(term("x", inTeam("red")))), fit: "a b",
			why: attracted},
		"by another namespaceSelector": {nodes: two, pod: testPod(near(term("x", inTeam("blue")))), why: attracted},
		"an empty namespaceSelector": {nodes: two,
			pod: testPod(elsewhere, near(term("x",
				func(t *corev1.PodAffinityTerm) { t.NamespaceSelector = &metav1.LabelSelector{} }))), fit: "a b", why: attracted},
		"namespaces and namespaceSelector": {nodes: two,
			pod: testPod(near(term("x", inTeam("blue"), inNamespaces("default")))), fit: "a b", why: attracted},
		"no selector selects nothing": {nodes: two, pod: testPod(far(corev1.PodAffinityTerm{TopologyKey: "zone"})),
			fit: "a b c"},
		"an empty selector selects all": {nodes: two,
			pod: testPod(far(corev1.PodAffinityTerm{TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{}})),
			why: repelled},
	} {
		t.Run(name, func(t *testing.T) {
			all := sketch(c.nodes...)
			all.SetNamespace("default", labels.Set{"team": "red"})
			all.SetNamespace("other", labels.Set{"team": "blue"})
			if c.there != nil {
				all.Add(cluster.NewPod(c.there), "a")
			}
			if fit, why := fitting(all, c.pod); fit != c.fit || why != c.why {
				t.Errorf("fits on %q, %q; want %q, %q", fit, why, c.fit, c.why)
			}
		})
	}
}

func TestNamespaceLabelsChangeWhatSelectorsSelect(t *testing.T) {
	t.Parallel()
	all := sketch("a zone=1: x")
	pod := testPod(elsewhere, near(term("x", inTeam("red"))))
	all.SetNamespace("default", labels.Set{})
	if fit, _ := fitting(all, pod); fit != "" {
		t.Error("fits without the label")
	}
	all.SetNamespace("default", labels.Set{"team": "red"})
	if fit, _ := fitting(all, pod); fit != "a" {
		t.Error("does not fit with the label")
	}
}

func claimed(names ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, name := range names {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}})
		}
	}
}

// bound returns a claim and its volume, which belongs to the CSI driver d.
func bound(name string, change ...func(*corev1.PersistentVolume)) []client.Object {
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
		Annotations: map[string]string{claim.BindCompleted: "yes"}}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: name}}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d",
			VolumeHandle: name}}}}
	for _, f := range change {
		f(pv)
	}
	return []client.Object{pvc, pv}
}

func TestVolumeZoneAndLimits(t *testing.T) {
	t.Parallel()
	zone := func(value string) func(*corev1.PersistentVolume) {
		return func(v *corev1.PersistentVolume) { v.Labels = map[string]string{corev1.LabelTopologyZone: value} }
	}
	limit := func(node string, count int32) []client.Object {
		return []client.Object{&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: storagev1.CSINodeSpec{
			Drivers: []storagev1.CSINodeDriver{{Name: "d", Allocatable: &storagev1.VolumeNodeResources{Count: &count}}}}}}
	}
	attached := func(volume string) []client.Object {
		return []client.Object{&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "at-" + volume},
			Spec: storagev1.VolumeAttachmentSpec{Attacher: "d", NodeName: "a",
				Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}}}}
	}
	needed := []client.Object{&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "d"},
		Spec: storagev1.CSIDriverSpec{PreventPodSchedulingIfMissing: new(true)}}}
	installed := []client.Object{&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "b"},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "d"}}}}}
	nodes := []string{"a topology.kubernetes.io/zone=1", "b topology.kubernetes.io/zone=2", "c"}
	const full, away = whyLimit + " final=false", whyZone + " final=true"
	for name, c := range map[string]struct {
		objects [][]client.Object
		there   []string // claims of the pods on a
		fit     string
		why     string
	}{
		"no zone": {objects: [][]client.Object{bound("v")}, fit: "a b c"},
		"a zone":  {objects: [][]client.Object{bound("v", zone("1"))}, fit: "a c", why: away},
		"zones":   {objects: [][]client.Object{bound("v", zone("2__1"))}, fit: "a b c"},
		"below the limit": {objects: [][]client.Object{bound("v"), bound("w"), limit("a", 2)},
			there: []string{"w"}, fit: "a b c"},
		"at the limit": {objects: [][]client.Object{bound("v"), bound("w"), limit("a", 1)},
			there: []string{"w"}, fit: "b c", why: full},
		"the same volume counts once": {objects: [][]client.Object{bound("v"), limit("a", 1)}, there: []string{"v"},
			fit: "a b c"},
		"a volume of two pods counts once": {objects: [][]client.Object{bound("v"), bound("w"), limit("a", 2)},
			there: []string{"w", "w"}, fit: "a b c"},
		"a limit of zero": {objects: [][]client.Object{bound("v"), limit("a", 0)}, fit: "b c", why: full},
		"another volume is attached": {objects: [][]client.Object{bound("v"), bound("w"), attached("w"), limit("a", 1)},
			fit: "b c", why: full},
		"the volume is attached": {objects: [][]client.Object{bound("v"), attached("v"), limit("a", 1)}, fit: "a b c"},
		"no node has the driver": {objects: [][]client.Object{bound("v"), needed},
			why: "d CSI driver is not installed on the node final=false"},
		"one node has the driver": {objects: [][]client.Object{bound("v"), needed, installed}, fit: "b",
			why: "d CSI driver is not installed on the node final=false"},
		"volumes without a driver do not count": {objects: [][]client.Object{bound("v",
			func(v *corev1.PersistentVolume) { v.Spec.CSI = nil }), limit("a", 0)}, fit: "a b c"},
	} {
		t.Run(name, func(t *testing.T) {
			all := sketch(nodes...)
			for _, obj := range slices.Concat(c.objects...) {
				all.Set(nil, obj)
			}
			for i, name := range c.there {
				all.Add(cluster.NewPod(testPod(named(fmt.Sprint("t", i)), claimed(name))), "a")
			}
			if fit, why := fitting(all, testPod(claimed("v"))); fit != c.fit || why != c.why {
				t.Errorf("fits on %q, %q; want %q, %q", fit, why, c.fit, c.why)
			}
		})
	}
}

func TestRequestsThatCount(t *testing.T) {
	t.Parallel()
	allocated := func(cpu string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", AllocatedResources: list("cpu", cpu),
				Resources: &corev1.ResourceRequirements{Requests: list("cpu", cpu)}}}
		}
	}
	for name, c := range map[string]struct {
		pod *corev1.Pod
		cpu int64
	}{
		"requests": {testPod(wants("cpu", "1")), 1000},
		"overhead": {testPod(wants("cpu", "1"), func(p *corev1.Pod) { p.Spec.Overhead = list("cpu", "250m") }), 1250},
		"overhead, status includes it": {testPod(wants("cpu", "1"), func(p *corev1.Pod) {
			p.Spec.Overhead = list("cpu", "250m")
			p.Status.Resources = &corev1.ResourceRequirements{Requests: list("cpu", "1250m")}
			p.Status.AllocatedResources = list("cpu", "1250m")
		}), 1250},
		"a resize down": {testPod(wants("cpu", "1"), allocated("2")), 2000},
		"a resize up":   {testPod(wants("cpu", "2"), allocated("1")), 2000},
		"requests of the pod": {testPod(wants("cpu", "1"),
			func(p *corev1.Pod) { p.Spec.Resources = &corev1.ResourceRequirements{Requests: list("cpu", "3")} }), 3000},
		"a larger init container": {testPod(wants("cpu", "1"), func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "i", Resources: corev1.ResourceRequirements{Requests: list("cpu",
				"4")}}}
		}), 4000},
	} {
		if got := cluster.NewPod(c.pod).Requests.CPU; got != c.cpu {
			t.Errorf("%s: %dm, want %dm", name, got, c.cpu)
		}
	}
	gpu := sketch("a")
	n := gpu.Node("a").DeepCopy()
	n.Status.Allocatable["example.com/gpu"] = list("x", "2")["x"]
	gpu.SetNode(n)
	gpu.Add(cluster.NewPod(testPod(named("g"), wants("example.com/gpu", "1"))), "a")
	if fit, _ := fitting(gpu, testPod(wants("example.com/gpu", "1"))); fit != "a" {
		t.Error("one of two GPUs is used, but a pod that requests one does not fit")
	}
	if fit, why := fitting(gpu, testPod(wants("example.com/gpu", "2"))); fit != "" ||
		why != "Insufficient example.com/gpu final=false" {
		t.Errorf("fits on %q, %q", fit, why)
	}
	if _, why := fitting(gpu, testPod(wants("example.com/gpu", "3"))); why != "Insufficient example.com/gpu final=true" {
		t.Errorf("more than allocatable: %q", why)
	}
}
