package csi

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"monopod/agent/host"
	"monopod/agent/resources/plugins"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/guard"
	"monopod/apiserver/registry"
	"monopod/store"
	"monopod/testdata/deviceplugin/sockets"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const hostpath = "hostpath.csi.k8s.io"

// world is a node with an API and a driver. Mounts survive restarts of the process and of the driver.
type world struct {
	*testing.T
	client.Client
	dir     string
	boot    string
	sockets sockets.Memory
	stop    func() // stops the Manager
	pull    func() // stops the driver

	limit atomic.Int64

	mu      sync.Mutex
	calls   []string
	mounts  map[string]int // number of mounts by path
	last    *csi.NodePublishVolumeRequest
	changed int
	panics  bool // the next call of Changed panics
	events  []string
	before  func(call string) error // makes a call of the driver fail before its effect
	after   func(call string) error
	can     []csi.NodeServiceCapability_RPC_Type
	csi.UnimplementedNodeServer
}

// in runs a test in virtual time, with a CSIDriver with the spec.
func in(t *testing.T, spec storagev1.CSIDriverSpec, test func(w *world, m *Manager)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		resources := registry.Resources()
		s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
		t.Cleanup(func() { s.Close() })
		r := registry.New(s, resources, registry.Config{})
		if err := r.Bootstrap(t.Context()); err != nil {
			t.Fatal(err)
		}
		w := &world{T: t, Client: r, dir: t.TempDir(), boot: "1", mounts: map[string]int{}, can: all}
		w.create(&corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
			ObjectMeta: metav1.ObjectMeta{Name: "n"}})
		w.create(&storagev1.CSIDriver{TypeMeta: metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "CSIDriver"},
			ObjectMeta: metav1.ObjectMeta{Name: hostpath}, Spec: spec})
		w.limit.Store(7)
		m := w.start()
		w.plug(m)
		test(w, m)
	})
}

var all = []csi.NodeServiceCapability_RPC_Type{csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
	csi.NodeServiceCapability_RPC_EXPAND_VOLUME, csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
	csi.NodeServiceCapability_RPC_VOLUME_CONDITION}

// unattached is the spec of a driver without attachment.
var unattached = storagev1.CSIDriverSpec{AttachRequired: new(false)}

func (w *world) create(obj client.Object) {
	w.Helper()
	if _, err := w.Client.Create(w.Context(), obj); err != nil {
		w.Fatal(err)
	}
}

// start starts a Manager, as a new process does.
func (w *world) start() *Manager {
	w.Helper()
	metrics, err := follow.NewMetrics(nil)
	if err != nil {
		w.Fatal(err)
	}
	m, err := New(Config{Client: w, Clock: clock.RealClock{}, Log: zap.NewNop(), Guard: guard.Logging(zap.NewNop()),
		Metrics: metrics, Mounter: w, Tokens: w, Dir: w.dir, Boot: w.boot, SELinux: func() bool { return true },
		Dial: w.sockets.Dial,
		Node: func() *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}} },
		Changed: func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.changed++; w.panics {
				w.panics = false
				panic("as a test wants it")
			}
		},
		Event: func(_ *corev1.Pod, _, reason, _ string, _ ...any) {
			w.mu.Lock()
			w.events = append(w.events, reason)
			w.mu.Unlock()
		}})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	wait := m.Start(ctx)
	w.stop = sync.OnceFunc(func() { cancel(); wait() })
	w.Cleanup(w.stop)
	return m
}

// plug starts the driver and registers it.
func (w *world) plug(m *Manager) {
	w.Helper()
	socket := filepath.Join(w.dir, "plugins", hostpath, "csi.sock")
	l, err := w.sockets.Listen(socket)
	if err != nil {
		w.Fatal(err)
	}
	s := grpc.NewServer()
	csi.RegisterNodeServer(s, w)
	done := make(chan error)
	go func() { done <- s.Serve(l) }()
	life, end := context.WithCancel(context.Background())
	if err := m.Welcome(life, w.Context(), plugins.Plugin{Name: hostpath, Socket: socket, Versions: []string{"1.0.0"},
		Endpoint: host.KubeletDir + "/plugins/" + hostpath + "/csi.sock"}); err != nil {
		w.Fatal(err)
	}
	w.pull = sync.OnceFunc(func() { end(); s.Stop(); <-done; synctest.Wait() })
	w.Cleanup(w.pull)
}

// restart kills the process, and starts it again with the driver.
func (w *world) restart() *Manager {
	w.pull()
	w.stop()
	m := w.start()
	w.plug(m)
	return m
}

func (w *world) node() *corev1.Node {
	n, err := client.Get[*corev1.Node](context.Background(), w.Client, "", "n")
	if err != nil {
		w.Fatal(err)
	}
	return n
}

// Token and Forget implement Tokens.
func (w *world) Token(_ context.Context, pod *corev1.Pod, p *corev1.ServiceAccountTokenProjection) (string, time.Time,
	error) {
	return "token of " + pod.Name + " for " + p.Audience, time.Unix(1, 0), nil
}

func (w *world) Forget(types.UID) {}

// Mounted implements Mounter.
func (w *world) Mounted(path string) (bool, error) {
	if _, err := os.Stat(path); err != nil {
		return false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mounts[path] > 0, nil
}

// call records a call and runs its effect, unless the test makes the call fail.
func (w *world) call(name string, effect func()) error {
	w.mu.Lock()
	w.calls = append(w.calls, name)
	before, after := w.before, w.after
	w.mu.Unlock()
	if before != nil {
		if err := before(name); err != nil {
			return err
		}
	}
	w.mu.Lock()
	effect()
	w.mu.Unlock()
	if after != nil {
		return after(name)
	}
	return nil
}

// here returns the path on this machine of a path in a request.
func (w *world) here(path string) string {
	if !strings.HasPrefix(path, host.KubeletDir+"/") {
		w.Errorf("the driver cannot see %s", path)
	}
	return host.KubeletPath(path, w.dir)
}

func (w *world) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (
	*csi.NodeGetCapabilitiesResponse, error) {
	out := &csi.NodeGetCapabilitiesResponse{}
	for _, c := range w.can {
		out.Capabilities = append(out.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: c}}})
	}
	return out, nil
}

func (w *world) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: "node-1", MaxVolumesPerNode: w.limit.Load(),
		AccessibleTopology: &csi.Topology{Segments: map[string]string{"topology.hostpath.csi/node": "n"}}}, nil
}

func (w *world) NodeStageVolume(_ context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse,
	error) {
	return &csi.NodeStageVolumeResponse{}, w.call("stage", func() { w.mounts[w.here(r.StagingTargetPath)] = 1 })
}

func (w *world) NodeUnstageVolume(_ context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse,
	error) {
	return &csi.NodeUnstageVolumeResponse{}, w.call("unstage", func() {
		for path, n := range w.mounts {
			if n > 0 && !strings.Contains(path, "globalmount") {
				w.Errorf("unstaged while %s is mounted", path)
			}
		}
		delete(w.mounts, w.here(r.StagingTargetPath))
	})
}

func (w *world) NodePublishVolume(_ context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse,
	error) {
	path := w.here(r.TargetPath)
	if r.StagingTargetPath != "" {
		if staged, err := w.Mounted(w.here(r.StagingTargetPath)); err != nil || !staged {
			w.Errorf("published before it is staged: %v", err)
		}
	}
	return &csi.NodePublishVolumeResponse{}, w.call("publish", func() {
		w.last = r
		w.mounts[path] = 1
		var err error
		if r.VolumeCapability.GetBlock() != nil {
			err = os.WriteFile(path, nil, 0o600)
		} else {
			err = os.MkdirAll(path, 0o755)
		}
		if err != nil {
			w.Error(err)
		}
	})
}

func (w *world) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (
	*csi.NodeUnpublishVolumeResponse, error) {
	return &csi.NodeUnpublishVolumeResponse{}, w.call("unpublish", func() { delete(w.mounts, w.here(r.TargetPath)) })
}

func (w *world) NodeExpandVolume(context.Context, *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse,
	error) {
	return &csi.NodeExpandVolumeResponse{}, w.call("expand", func() {})
}

func (w *world) NodeGetVolumeStats(context.Context, *csi.NodeGetVolumeStatsRequest) (
	*csi.NodeGetVolumeStatsResponse, error) {
	return &csi.NodeGetVolumeStatsResponse{
		Usage:           []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: 10, Available: 7, Used: 3}},
		VolumeCondition: &csi.VolumeCondition{Abnormal: true},
	}, nil
}

// volume returns the volume of the pod with this name. All pods use the same PersistentVolume.
func (w *world) volume(pod string, change ...func(*corev1.PersistentVolume)) Volume {
	pv := &corev1.PersistentVolume{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"},
		ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{"storage": resource.MustParse("1Gi")},
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: hostpath,
				VolumeHandle: "handle", VolumeAttributes: map[string]string{"a": "b"}}}}}
	for _, f := range change {
		f(pv)
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: pod, UID: types.UID(pod)}}
	return Volume{Pod: p, Name: "data", Persistent: pv,
		Dir: filepath.Join(w.dir, "pods", pod, "volumes", podFolder, "pv")}
}

func (w *world) inline(pod string) Volume {
	v := w.volume(pod)
	v.Persistent, v.Inline = nil, &corev1.CSIVolumeSource{Driver: hostpath}
	v.Dir = filepath.Join(filepath.Dir(v.Dir), v.Name)
	return v
}

func (w *world) setUp(m *Manager, v Volume) string {
	w.Helper()
	path, err := m.SetUp(w.Context(), v)
	if err != nil {
		w.Fatal(err)
	}
	if w.mounts[path] != 1 {
		w.Errorf("%s is not mounted", path)
	}
	return path
}

func (w *world) tearDown(m *Manager, pod string) {
	w.Helper()
	if err := m.TearDown(w.Context(), filepath.Join(w.dir, "pods", pod)); err != nil {
		w.Fatal(err)
	}
	synctest.Wait()
}

// expect checks the calls of the driver since the last expect.
func (w *world) expect(want string) {
	w.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := strings.Join(w.calls, " "); got != want {
		w.Errorf("calls %q, want %q", got, want)
	}
	w.calls = nil
}

// expectNothingLeft checks that there are no mounts and no records.
func (w *world) expectNothingLeft() {
	w.Helper()
	synctest.Wait()
	if len(w.mounts) > 0 {
		w.Errorf("still mounted: %v", w.mounts)
	}
	err := filepath.WalkDir(w.dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && (e.Name() == fileName || e.Name() == "globalmount" || e.Name() == "mount") {
			w.Errorf("left: %s", path)
		}
		return err
	})
	if err != nil {
		w.Error(err)
	}
}
