package agent

import (
	"context"
	"path/filepath"
	"slices"
	"sync"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/admission"
	"monopod/agent/node/shutdown"
	"monopod/agent/node/shutdown/logind"
	"monopod/agent/node/shutdown/times"
	"monopod/agent/pod"
	"monopod/agent/pod/status"
	"monopod/agent/pressure/evictor"
	"monopod/agent/resources/checkpoint"
)

// drain stops the pods of the node before the machine goes down.
type drain struct {
	a     *Agent
	wake  chan struct{}
	times *times.Record      // belongs to run
	mu    sync.Mutex         // guards what follows
	now   *descent           // nil: the node stays up
	again map[types.UID]bool // static pods that the last descent kept from running
}

// descent is one way down. It ends with the agent, or when it is called off.
type descent struct {
	periods shutdown.Periods
	cancel  context.CancelFunc // nil: it has not begun
	over    chan struct{}      // closed when nothing more will be ended
	missed  bool               // the pods did not become known in time
	ending  []*pod.Pod
	kept    []types.UID // told to end, or refused
}

func newDrain(a *Agent) (*drain, error) {
	record, err := times.New(a.Metrics, checkpoint.File(filepath.Join(a.cfg.DataDir, "graceful_node_shutdown_state")))
	return &drain{a: a, wake: make(chan struct{}, 1), times: record}, err
}

var (
	_ shutdown.Node = (*Agent)(nil)
	_ logind.Node   = (*Agent)(nil)
)

// Shutdown implements shutdown.Node.
func (a *Agent) Shutdown(p shutdown.Periods) { a.drain.begin(p) }

// StopPods implements logind.Node.
func (a *Agent) StopPods(ctx context.Context, p shutdown.Periods) {
	select {
	case <-ctx.Done():
	case <-a.drain.begin(p).over:
	}
}

// StayUp implements logind.Node. Pods that were told to end do so; those of files
// start again.
func (a *Agent) StayUp() {
	a.drain.callOff()
	a.node.Poke()
	a.retryStatics()
}

// Progress implements shutdown.Node.
func (a *Agent) Progress() *shutdown.Progress {
	d := a.drain
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.now == nil {
		return nil
	}
	p := &shutdown.Progress{Done: d.now.ended(), Unknown: d.now.missed || !d.a.knowsPods()}
	for _, w := range d.now.ending {
		if !w.Over() {
			pod := w.Object()
			p.Running = append(p.Running, pod.Namespace+"/"+pod.Name)
		}
	}
	return p
}

func (d *descent) ended() bool {
	select {
	case <-d.over:
		return true
	default:
		return false
	}
}

// begin begins a descent, or is about the one that has begun.
func (d *drain) begin(p shutdown.Periods) *descent {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.now == nil {
		d.now = &descent{periods: p, over: make(chan struct{})}
		select {
		case d.wake <- struct{}{}:
		default:
		}
	}
	return d.now
}

// callOff ends the descent; when it returns, nobody more is told to end.
func (d *drain) callOff() {
	d.mu.Lock()
	now := d.now
	d.now = nil
	d.mu.Unlock()
	if now == nil {
		return
	}
	if now.cancel != nil {
		now.cancel()
		<-now.over
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.again = map[types.UID]bool{}
	for _, uid := range now.kept {
		d.again[uid] = true
	}
}

// takeAgain are the pods that may run again, if files want them to.
func (d *drain) takeAgain() (again map[types.UID]bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	again, d.again = d.again, nil
	return again
}

// down says whether the node is on its way.
func (d *drain) down() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now != nil
}

// refuse keeps new pods out meanwhile. While it is not known which there are, any may
// have run before: those are let in, and end like the others. Once it is too late for
// that they are refused too, which ends what they run.
func (d *drain) refuse(pod *corev1.Pod) *status.Failure {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.now == nil || !d.now.missed && !d.a.knowsPods() {
		return nil
	}
	d.now.kept = append(d.now.kept, pod.UID)
	return admission.Rejected(shutdown.Refused, shutdown.RefusedText)
}

// run waits to be asked, then stops the pods, until ctx ends.
func (d *drain) run(ctx context.Context) {
	d.note(d.times.Load())
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
		}
		below, cancel := context.WithCancel(ctx)
		if now := d.take(cancel); now != nil {
			d.descend(below, now)
			close(now.over)
		}
		cancel()
	}
}

func (d *drain) note(err error) {
	if err != nil {
		d.a.log.Warn("when the node last shut down is not known after a restart", zap.Error(err))
	}
}

// take is the descent that is to begin; nil: none, or it was called off.
func (d *drain) take(cancel context.CancelFunc) *descent {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.now == nil || d.now.cancel != nil {
		return nil
	}
	d.now.cancel = cancel
	return d.now
}

// descend is the whole way down. Its end is noted if no pod was left out.
func (d *drain) descend(ctx context.Context, now *descent) {
	d.note(d.times.Begin(d.a.Clock.Now()))
	left, known := d.learn(ctx, now)
	if d.stop(ctx, now, left); known && ctx.Err() == nil {
		d.note(d.times.End(d.a.Clock.Now()))
	}
}

// learn waits for the pods to be known, as they are not right after a start, but no
// longer than they may take to end. left is what there is for that afterwards.
func (d *drain) learn(ctx context.Context, now *descent) (left shutdown.Periods, known bool) {
	if d.a.knowsPods() {
		return now.periods, true
	}
	start := d.a.Clock.Now()
	timer := d.a.Clock.NewTimer(now.periods.Bound())
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-d.a.swept:
	case <-timer.C():
		d.miss(now)
	}
	return now.periods.Within(now.periods.Needs() - d.a.Clock.Since(start)), !now.missed && d.a.knowsPods()
}

// miss gives up learning of the pods, unless they are known at the last moment.
func (d *drain) miss(now *descent) {
	d.mu.Lock()
	now.missed = !d.a.knowsPods()
	d.mu.Unlock()
	if now.missed { // which nobody else writes
		d.a.log.Warn("it is not known in time which pods the node has: those that are learned of later are refused")
	}
}

// stop ends the pods, a stage after the other, until ctx ends.
func (d *drain) stop(ctx context.Context, now *descent, within shutdown.Periods) {
	if ctx.Err() != nil {
		return
	}
	d.a.log.Info("the node is shutting down: its pods are stopped", zap.Duration("within", within.Bound()))
	d.a.node.Poke()
	workers := d.a.all()
	for _, stage := range within.Stages(d.living(now, workers), d.a.evict.Critical) {
		if ctx.Err() != nil {
			return
		}
		var ending []evictor.Pod
		for _, pod := range stage.Pods {
			w := workers[pod.UID]
			d.keep(now, pod.UID)
			w.Evict(shutdown.Failure(), stage.Grace(pod))
			ending = append(ending, w)
		}
		d.a.evict.Await(ctx, ending, stage.Time+shutdown.Slack)
	}
}

// living are the pods that are to end, the oldest first.
func (d *drain) living(now *descent, workers map[types.UID]*pod.Pod) (pods []*corev1.Pod) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range workers {
		if !w.Over() {
			pods = append(pods, w.Object())
			now.ending = append(now.ending, w)
		}
	}
	slices.SortFunc(pods, func(x, y *corev1.Pod) int { return x.CreationTimestamp.Compare(y.CreationTimestamp.Time) })
	return pods
}

func (d *drain) keep(now *descent, uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now.kept = append(now.kept, uid)
}
