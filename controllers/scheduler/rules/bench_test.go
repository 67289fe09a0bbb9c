package rules

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/controllers/scheduler/cluster"
)

// BenchmarkChoose measures the choice among 1,000 nodes, and the update of the counts, for a number of existing pods of
// 50 applications with topology spread constraints over zones and anti-affinity on a node.
func BenchmarkChoose(b *testing.B) {
	worker := func(i int) *cluster.Pod {
		p := testPod(named(fmt.Sprint("p", i)), app(fmt.Sprint("a", i%50)), wants("cpu", "1m", "memory", "1Mi"))
		by := &metav1.LabelSelector{MatchLabels: p.Labels}
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 50, TopologyKey: "zone",
			WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: by}}
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{TopologyKey: "host", LabelSelector: by}}}}
		return cluster.NewPod(p)
	}
	for _, pods := range []int{100, 5000, 20000} {
		b.Run(fmt.Sprint(pods, " pods"), func(b *testing.B) {
			all := cluster.New()
			for i := range 1000 {
				all.SetNode(testNode(func(n *corev1.Node) {
					n.Name = fmt.Sprint("n", i)
					n.Labels = map[string]string{"host": n.Name, "zone": fmt.Sprint(i / 20)}
					n.Status.Allocatable = list("cpu", "100", "memory", "100Gi", "pods", "1000")
				}))
			}
			for i := range pods {
				all.Add(worker(i), fmt.Sprint("n", (i/50)%1000))
			}
			chooser, i := Chooser{Rules: All()}, pods
			for i := range 50 { // the first choice for an application builds its counts
				chooser.Choose(NewCycle(all, worker(i)))
			}
			for b.Loop() {
				i++
				p := worker(i)
				out := chooser.Choose(NewCycle(all, p))
				if out.Node == nil {
					b.Fatal(out.Message())
				}
				all.Add(p, out.Node.Name)
				all.Remove(p.UID)
			}
		})
	}
}
