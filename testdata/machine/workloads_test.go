package machine_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/store/etcd/etcdtest"
	"monopod/testdata/harness"
)

// rolloutKills is an environment variable: the number of rounds of TestKilledDuringRollouts; default 6.
const rolloutKills = "MONOPOD_ROLLOUT_KILLS"

const (
	deploymentPath = "/apis/apps/v1/namespaces/default/deployments"
	jobPath        = "/apis/batch/v1/namespaces/default/jobs"
)

// sandboxed returns a monopod with the fake runtime and a new data folder. begin starts it.
func sandboxed(t *testing.T, node string, flags ...string) *server {
	t.Helper()
	programs := harness.Build(t)
	dir, err := programs.NewFolder()
	if err != nil {
		t.Fatal(err)
	}
	s := &server{Server: harness.NewServer(programs.Monopod(harness.Plain), dir,
		append([]string{"--runtime=fake", "--node-name", node, "--eviction-hard=memory.available<100Mi"}, flags...)...)}
	t.Cleanup(func() {
		s.CleanUp(false)
		if t.Failed() {
			t.Logf("%s", s.Log)
		}
		os.RemoveAll(dir)
	})
	return s
}

func template(app string, args ...string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []corev1.Container{{Name: "c", Image: "monopod.local/web:1", ImagePullPolicy: corev1.PullNever,
				Args: args}}},
	}
}

// replicas and surge of the Deployment web.
const (
	replicas = 6
	surge    = 2
)

func webDeployment() appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	return appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{Replicas: new(int32(replicas)), RevisionHistoryLimit: new(int32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template("web")}}
}

// completions and parallelism of each Job.
const (
	completions = 5
	parallelism = 2
)

// oneJob returns the Job of a round, Indexed in every second round. Its containers restart in place, so the Job has one
// pod for each completion.
func oneJob(round int) batchv1.Job {
	job := batchv1.Job{TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("task-", round)},
		Spec: batchv1.JobSpec{Completions: new(int32(completions)), Parallelism: new(int32(parallelism)),
			BackoffLimit: new(int32(1000)), Template: template("task", "exit", "0")}}
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	if round%2 == 1 {
		job.Spec.CompletionMode = new(batchv1.IndexedCompletion)
	}
	return job
}

// mark sets the number of the round in a template.
func mark(template *corev1.PodTemplateSpec, round int) {
	template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "ROUND", Value: fmt.Sprint(round)}}
}

// roll starts a rollout of the Deployment.
func (s *server) roll(t *testing.T, round int) {
	t.Helper()
	edit(t, s, deploymentPath+"/web", func(d *appsv1.Deployment) { mark(&d.Spec.Template, round) })
}

// edit changes an object, and retries after a conflict.
func edit[T any](t *testing.T, s *server, path string, change func(*T)) {
	t.Helper()
	if !harness.Eventually(harness.Enough, func() bool {
		var d T
		if _, err := s.call(http.MethodGet, path, nil, &d); err != nil {
			t.Fatal(err)
		}
		change(&d)
		code, err := s.call(http.MethodPut, path, d, nil)
		if err != nil && code != http.StatusConflict {
			t.Fatal(err)
		}
		return err == nil
	}) {
		t.Fatal("the update conflicts repeatedly")
	}
}

// podsOf returns the pods of an app.
func (s *server) podsOf(t *testing.T, app string) []corev1.Pod {
	t.Helper()
	var list corev1.PodList
	if _, err := s.call(http.MethodGet, podPath+"?labelSelector=app="+app, nil, &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// oneSync is the time for which surplus pods may exist.
const oneSync = time.Second

// rolledOut waits until the rollout of a round is complete. Meanwhile surplus pods may exist only for oneSync.
func (s *server) rolledOut(t *testing.T, round int) {
	t.Helper()
	var since time.Time
	var d appsv1.Deployment
	if !harness.Eventually(harness.Enough, func() bool {
		pods := s.podsOf(t, "web")
		there := slices.DeleteFunc(slices.Clone(pods), func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
		switch {
		case len(there) <= replicas+surge:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) > harness.Scaled(oneSync):
			t.Errorf("round %d: %d pods, at most %d are allowed", round, len(there), replicas+surge)
		}
		d = appsv1.Deployment{}
		if _, err := s.call(http.MethodGet, deploymentPath+"/web", nil, &d); err != nil {
			t.Fatal(err)
		}
		st := d.Status
		return st.ObservedGeneration == d.Generation && st.UpdatedReplicas == replicas && st.AvailableReplicas == replicas &&
			st.Replicas == replicas &&
			len(pods) == replicas &&
			!slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.Spec.Containers[0].Env[0].Value != fmt.Sprint(round) })
	}) {
		t.Fatalf("round %d: the rollout is stuck: %+v", round, d.Status)
	}
}

// completed waits until the Job of a round is complete, and checks that every pod was counted once and none is surplus.
func (s *server) completed(t *testing.T, round int) {
	t.Helper()
	var job batchv1.Job
	name := oneJob(round).Name
	if !harness.Eventually(harness.Enough, func() bool {
		job = batchv1.Job{}
		if _, err := s.call(http.MethodGet, jobPath+"/"+name, nil, &job); err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
			return c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue
		})
	}) {
		t.Fatalf("round %d: the Job is stuck: %+v", round, job.Status)
	}
	pods := slices.DeleteFunc(s.podsOf(t, "task"),
		func(p corev1.Pod) bool { return p.Labels[batchv1.JobNameLabel] != name })
	if st := job.Status; st.Succeeded != completions || st.Failed != 0 || st.Active != 0 || len(pods) != completions {
		t.Errorf("round %d: %d pods, counted as %+v", round, len(pods), st)
	}
	for _, p := range pods {
		if p.Status.Phase != corev1.PodSucceeded || len(p.Finalizers) > 0 {
			t.Errorf("round %d: pod %s is %s with finalizers %v", round, p.Name, p.Status.Phase, p.Finalizers)
		}
	}
	s.insist(t, http.MethodDelete, jobPath+"/"+name,
		metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
}

const (
	setPath     = "/apis/apps/v1/namespaces/default/statefulsets"
	daemonsPath = "/apis/apps/v1/namespaces/default/daemonsets"
	members     = 3 // replicas of the StatefulSet
)

// createSets creates a StatefulSet and a DaemonSet.
func (s *server) createSets(t *testing.T) {
	t.Helper()
	selector := func(app string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	}
	s.insist(t, http.MethodPost, setPath,
		appsv1.StatefulSet{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"},
			ObjectMeta: metav1.ObjectMeta{Name: "db"},
			Spec: appsv1.StatefulSetSpec{Replicas: new(int32(members)), ServiceName: "db", Selector: selector("db"),
				Template: template("db")}})
	s.insist(t, http.MethodPost, daemonsPath,
		appsv1.DaemonSet{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
			ObjectMeta: metav1.ObjectMeta{Name: "agent"},
			Spec:       appsv1.DaemonSetSpec{Selector: selector("agent"), Template: template("agent")}})
}

// rollSets starts rollouts of the StatefulSet and the DaemonSet.
func (s *server) rollSets(t *testing.T, round int) {
	t.Helper()
	edit(t, s, setPath+"/db", func(d *appsv1.StatefulSet) { mark(&d.Spec.Template, round) })
	edit(t, s, daemonsPath+"/agent", func(d *appsv1.DaemonSet) { mark(&d.Spec.Template, round) })
}

// setsRolledOut waits until both rollouts are complete: every pod has the template of the round, and none is surplus.
func (s *server) setsRolledOut(t *testing.T, round int) {
	t.Helper()
	var set appsv1.StatefulSet
	var daemons appsv1.DaemonSet
	if !harness.Eventually(harness.Enough, func() bool {
		set, daemons = appsv1.StatefulSet{}, appsv1.DaemonSet{}
		for path, into := range map[string]any{setPath + "/db": &set, daemonsPath + "/agent": &daemons} {
			if _, err := s.call(http.MethodGet, path, nil, into); err != nil {
				t.Fatal(err)
			}
		}
		pods := append(s.podsOf(t, "db"), s.podsOf(t, "agent")...)
		return set.Status.ObservedGeneration == set.Generation && set.Status.AvailableReplicas == members &&
			set.Status.UpdatedReplicas == members &&
			set.Status.CurrentRevision == set.Status.UpdateRevision && daemons.Status.ObservedGeneration == daemons.Generation &&
			daemons.Status.NumberAvailable == 1 && daemons.Status.UpdatedNumberScheduled == 1 && len(pods) == members+1 &&
			!slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.Spec.Containers[0].Env[0].Value != fmt.Sprint(round) })
	}) {
		t.Fatalf("round %d: a rollout is stuck: %+v %+v", round, set.Status, daemons.Status)
	}
}

// paused changes the template of the paused Deployment and kills monopod. The Deployment must create no pods of the
// round until paused resumes it.
func (s *server) paused(t *testing.T, round int) {
	t.Helper()
	edit(t, s, deploymentPath+"/web", func(d *appsv1.Deployment) {
		mark(&d.Spec.Template, round)
		d.Spec.Paused = true
	})
	time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond)
	s.End(syscall.SIGKILL)
	s.begin(t)
	var d appsv1.Deployment
	if !harness.Eventually(harness.Enough, func() bool {
		d = appsv1.Deployment{}
		if _, err := s.call(http.MethodGet, deploymentPath+"/web", nil, &d); err != nil {
			t.Fatal(err)
		}
		return d.Status.ObservedGeneration == d.Generation && d.Status.AvailableReplicas == replicas &&
			slices.ContainsFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
				return c.Type == appsv1.DeploymentProgressing && c.Reason == "DeploymentPaused"
			})
	}) {
		t.Fatalf("round %d: the Deployment is not paused: %+v", round, d.Status)
	}
	for _, p := range s.podsOf(t, "web") {
		if env := p.Spec.Containers[0].Env; len(env) > 0 && env[0].Value == fmt.Sprint(round) {
			t.Errorf("round %d: the paused Deployment has the new pod %s", round, p.Name)
		}
	}
	edit(t, s, deploymentPath+"/web", func(d *appsv1.Deployment) { d.Spec.Paused = false })
}

const (
	scalerPath = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
	cronPath   = "/apis/batch/v1/namespaces/default/cronjobs"
)

// createScaled creates a Deployment with a HorizontalPodAutoscaler, and a CronJob that runs every minute.
func (s *server) createScaled(t *testing.T) {
	t.Helper()
	d := webDeployment()
	d.Name, d.Spec.Template, d.Spec.Replicas = "auto", template("auto"), nil
	d.Spec.Selector.MatchLabels = map[string]string{"app": "auto"}
	s.insist(t, http.MethodPost, deploymentPath, d)
	s.insist(t, http.MethodPost, scalerPath,
		autoscalingv2.HorizontalPodAutoscaler{TypeMeta: metav1.TypeMeta{APIVersion: "autoscaling/v2",
			Kind: "HorizontalPodAutoscaler"}, ObjectMeta: metav1.ObjectMeta{Name: "auto"},
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 1,
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment",
					Name: "auto"}}})
	job := oneJob(0)
	job.Spec.Completions, job.Spec.Parallelism, job.Spec.Template.Labels = nil, nil, map[string]string{"app": "tick"}
	s.insist(t, http.MethodPost, cronPath, batchv1.CronJob{TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1",
		Kind: "CronJob"}, ObjectMeta: metav1.ObjectMeta{Name: "tick"},
		Spec: batchv1.CronJobSpec{Schedule: "* * * * *", SuccessfulJobsHistoryLimit: new(int32(1000)),
			JobTemplate: batchv1.JobTemplateSpec{Spec: job.Spec}}})
}

// scale sets the range of the autoscaler to the number of pods of a round.
func (s *server) scale(t *testing.T, round int) {
	t.Helper()
	edit(t, s, scalerPath+"/auto", func(h *autoscalingv2.HorizontalPodAutoscaler) {
		h.Spec.MinReplicas, h.Spec.MaxReplicas = new(scaledTo(round)), scaledTo(round)
	})
}

func scaledTo(round int) int32 { return int32(1 + round%3) }

// scaled waits until the Deployment has the number of pods of a round, and the autoscaler reports it.
func (s *server) scaled(t *testing.T, round int) {
	t.Helper()
	want := scaledTo(round)
	var d appsv1.Deployment
	var h autoscalingv2.HorizontalPodAutoscaler
	if !harness.Eventually(harness.Enough, func() bool {
		d, h = appsv1.Deployment{}, autoscalingv2.HorizontalPodAutoscaler{}
		for path, into := range map[string]any{deploymentPath + "/auto": &d, scalerPath + "/auto": &h} {
			if _, err := s.call(http.MethodGet, path, nil, into); err != nil {
				t.Fatal(err)
			}
		}
		return d.Status.Replicas == want && d.Status.AvailableReplicas == want && len(s.podsOf(t, "auto")) == int(want) &&
			h.Status.CurrentReplicas == want
	}) {
		t.Fatalf("round %d: want %d pods: %+v %+v", round, want, d.Status, h.Status)
	}
}

// ticked checks that the CronJob has a complete Job for each minute from the first to the last one.
func (s *server) ticked(t *testing.T) {
	t.Helper()
	var jobs []batchv1.Job
	if !harness.Eventually(harness.Enough, func() bool {
		var list batchv1.JobList
		if _, err := s.call(http.MethodGet, jobPath, nil, &list); err != nil {
			t.Fatal(err)
		}
		jobs = slices.DeleteFunc(list.Items, func(j batchv1.Job) bool { return !strings.HasPrefix(j.Name, "tick-") })
		return !slices.ContainsFunc(jobs, func(j batchv1.Job) bool { return j.Status.CompletionTime == nil })
	}) {
		t.Fatalf("a Job of the CronJob is stuck: %+v", jobs)
	}
	var minutes []int
	for _, j := range jobs {
		minute, err := strconv.Atoi(strings.TrimPrefix(j.Name, "tick-"))
		if err != nil || j.Status.Succeeded != 1 || j.Status.Failed != 0 {
			t.Errorf("Job %s: %+v", j.Name, j.Status)
		}
		minutes = append(minutes, minute)
	}
	slices.Sort(minutes)
	if n := len(minutes); n > 0 && minutes[n-1]-minutes[0] != n-1 {
		t.Errorf("Jobs of the minutes %v: some are missing", minutes)
	}
}

// TestKilledDuringRollouts kills monopod at random moments of rollouts, Jobs and scaling. In every second round the
// Deployment is paused first.
func TestKilledDuringRollouts(t *testing.T) {
	t.Parallel()
	s := sandboxed(t, "node1")
	s.begin(t)
	s.insist(t, http.MethodPost, deploymentPath, webDeployment())
	s.createSets(t)
	s.createScaled(t)
	for round := range asked(t, rolloutKills, 6) {
		if round%2 == 1 {
			s.paused(t, round)
		} else {
			s.roll(t, round)
		}
		s.rollSets(t, round)
		s.scale(t, round)
		s.insist(t, http.MethodPost, jobPath, oneJob(round))
		for range 1 + rand.IntN(2) {
			time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond)
			s.End(syscall.SIGKILL)
			s.begin(t)
		}
		s.rolledOut(t, round)
		s.setsRolledOut(t, round)
		s.scaled(t, round)
		s.completed(t, round)
		if t.Failed() {
			return
		}
	}
	s.ticked(t)
}

// TestDeadNode kills the leader of two servers on one etcd, which is also the node of some pods. The other server must
// become leader and replace them. When the node is ready again, its old pods must end.
func TestDeadNode(t *testing.T) {
	t.Parallel()
	flags := []string{"--store=" + etcdtest.Start(t), "--node-monitor-grace-period=20s",
		"--default-unreachable-toleration-seconds=1"}
	servers := []*server{sandboxed(t, "node1", flags...), sandboxed(t, "node2", flags...)}
	for _, s := range servers {
		s.begin(t)
	}
	dead, alive := servers[0], servers[1]
	alive.insist(t, http.MethodPost, deploymentPath, webDeployment())
	// on counts the ready and the terminating pods of a node.
	on := func(node string) (ready, deleted int) {
		for _, p := range alive.podsOf(t, "web") {
			switch {
			case p.Spec.NodeName != node:
			case p.DeletionTimestamp != nil:
				deleted++
			case slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady &&
					c.Status == corev1.ConditionTrue
			}):
				ready++
			}
		}
		return ready, deleted
	}
	steps := []struct {
		what string
		do   func()
		ok   func() bool
	}{
		{"the pods run on both nodes", func() {}, func() bool {
			first, _ := on("node1")
			second, _ := on("node2")
			return first > 0 && second > 0 && first+second == replicas
		}},
		{"the dead node's pods are not ready", func() { dead.End(syscall.SIGKILL) },
			func() bool { ready, _ := on("node1"); return ready == 0 }},
		{"all replicas run on the other node", func() {}, func() bool {
			_, deleted := on("node1")
			ready, _ := on("node2")
			return deleted > 0 && ready == replicas
		}},
		{"the old pods end", func() { dead.begin(t) }, func() bool { return len(alive.podsOf(t, "web")) == replicas }},
		{"the node has no taints", func() {}, func() bool {
			var node corev1.Node
			_, err := alive.call(http.MethodGet, "/api/v1/nodes/node1", nil, &node)
			return err == nil && len(node.Spec.Taints) == 0
		}},
	}
	for _, step := range steps {
		step.do()
		if !harness.Eventually(harness.Enough, step.ok) {
			t.Fatalf("timeout: %s: %+v", step.what, alive.podsOf(t, "web"))
		}
	}
}

// TestLeadershipMoves moves the leadership between two servers on one etcd during each rollout and Job, by a restart of
// the leader.
func TestLeadershipMoves(t *testing.T) {
	t.Parallel()
	store := "--store=" + etcdtest.Start(t)
	servers := []*server{sandboxed(t, "node1", store), sandboxed(t, "node2", store)}
	for _, s := range servers {
		s.begin(t)
	}
	servers[0].insist(t, http.MethodPost, deploymentPath, webDeployment())
	for round := range 2 {
		leader, other := servers[round%2], servers[(round+1)%2]
		leader.roll(t, round)
		leader.insist(t, http.MethodPost, jobPath, oneJob(round))
		time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond)
		leader.End(syscall.SIGTERM)
		leader.begin(t) // its node must run for its pods
		other.rolledOut(t, round)
		other.completed(t, round)
	}
}
