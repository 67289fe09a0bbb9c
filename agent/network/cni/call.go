package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/utils"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"

	"monopod/agent/network/cni/ipam"
)

const (
	// lockTimeout is how long a call waits for another one for the same container. The stub gives up on a call after
	// REPLY_SECONDS, and then starts it again.
	lockTimeout = 30 * time.Second
	lockPoll    = 2 * time.Millisecond
)

var (
	errBusy       = errors.New("another call for the same container has not ended")
	errCallerGone = errors.New("the caller is gone")
)

// call is one call of the plugin: containerd runs this program, or the stub sends the call to the server.
type call struct {
	plugin  string            // pluginName or loopbackName
	env     map[string]string // the variables CNI_…
	config  []byte            // standard input
	conf    pluginConf        // config, decoded by run
	confErr error             // decoding config failed
	admit   Admit             // nil: no check
}

// args are a call's checked arguments.
type args struct {
	container, netns, ifname string
	conf                     pluginConf
	pod                      ipam.PodRef
	admit                    func(addrs []netip.Addr) error // nil: no check
}

// answer is the plugin's exit code and standard output.
type answer struct {
	code   uint32
	output []byte
}

// verb executes one command. It returns a nil result for commands that print nothing.
type verb func(args) (types.Result, error)

// verbs returns the commands of a plugin, and nil for another program.
func verbs(plugin string) map[string]verb {
	nothing := func(args) (types.Result, error) { return nil, nil }
	switch plugin {
	case pluginName:
		return map[string]verb{"ADD": add, "DEL": del, "CHECK": check}
	case loopbackName:
		return map[string]verb{"ADD": addLoopback, "DEL": nothing, "CHECK": nothing}
	default:
		return nil
	}
}

// Invoked reports whether this process was started as a CNI plugin: argv0 is one of the plugins in BinDir, and the
// variables of the protocol are set.
func Invoked(argv0 string) bool {
	return verbs(filepath.Base(argv0)) != nil && os.Getenv("CNI_COMMAND") != ""
}

// Main runs the plugin and returns the exit code. It prints the result to stdout, as the protocol requires.
func Main(argv0 string) int {
	c := call{plugin: filepath.Base(argv0), env: map[string]string{}}
	for _, v := range os.Environ() {
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, "CNI_") {
			c.env[name] = value
		}
	}
	var err error
	if c.config, err = io.ReadAll(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := 1
	err = c.run(func() bool { return true }, func(a answer) error {
		code = int(a.code)
		_, err := os.Stdout.Write(a.output)
		return err
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// run executes the call and delivers the answer. It holds a lock, so that calls for one container never run at the same
// time, in any process. It does nothing if the caller is gone by then, and undoes an ADD whose answer cannot be
// delivered.
func (c call) run(wanted func() bool, deliver func(answer) error) error {
	c = c.withConf()
	unlock, err := c.lock(wanted)
	if err != nil {
		return deliver(failure(err))
	}
	defer unlock()
	if !wanted() {
		return errCallerGone
	}
	a := c.do()
	err = deliver(a)
	if err != nil && a.code == 0 && c.env["CNI_COMMAND"] == "ADD" {
		c.env["CNI_COMMAND"] = "DEL"
		c.do()
	}
	return err
}

// withConf returns the call with its decoded configuration.
func (c call) withConf() call {
	c.confErr = json.Unmarshal(c.config, &c.conf)
	return c
}

// lock locks the container in the network's folder: one byte of the file calls, so that no file is left behind. Calls
// of loopback are not locked, because they do not conflict with each other.
func (c call) lock(wanted func() bool) (unlock func(), err error) {
	if c.plugin == loopbackName || c.conf.check() != nil {
		return func() {}, nil
	}
	file, err := os.OpenFile(filepath.Join(c.conf.Dir, "calls"), os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, os.ErrNotExist) { // the network was removed: ADD fails, DEL has nothing to do
		return func() {}, nil
	}
	if err != nil {
		return nil, err
	}
	id := fnv.New64a()
	id.Write([]byte(c.env["CNI_CONTAINERID"]))
	part := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: int64(id.Sum64() >> 2), Len: 1}
	for began := time.Now(); ; time.Sleep(lockPoll) {
		err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &part)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EINTR) {
			file.Close()
			return nil, fmt.Errorf("lock the container: %w", err)
		}
		if time.Since(began) > lockTimeout || !wanted() {
			file.Close()
			return nil, errBusy
		}
	}
}

// do executes the call in the thread's network namespace, which must be the host's.
func (c call) do() answer {
	versions := version.PluginSupports("0.3.0", "0.3.1", "0.4.0", "1.0.0")
	var out bytes.Buffer
	if c.env["CNI_COMMAND"] == "VERSION" {
		if err := versions.Encode(&out); err != nil {
			return failure(err)
		}
		return answer{output: out.Bytes()}
	}
	a, err := c.check(versions)
	if err != nil {
		return failure(err)
	}
	result, err := verbs(c.plugin)[c.env["CNI_COMMAND"]](a)
	if err != nil {
		return failure(err)
	}
	if result == nil {
		return answer{}
	}
	if result, err = result.GetAsVersion(c.conf.CNIVersion); err == nil {
		err = result.PrintTo(&out)
	}
	if err != nil {
		return failure(err)
	}
	return answer{output: out.Bytes()}
}

// check returns the arguments if they are complete and valid.
func (c call) check(versions version.PluginInfo) (args, error) {
	a := args{container: c.env["CNI_CONTAINERID"], netns: c.env["CNI_NETNS"], ifname: c.env["CNI_IFNAME"], conf: c.conf}
	a.pod.NamespacedName, a.pod.UID = podOf(c.env["CNI_ARGS"])
	a.admit = admitPod(c.env["CNI_ARGS"], c.admit)
	command := c.env["CNI_COMMAND"]
	if verbs(c.plugin)[command] == nil {
		return a, types.NewError(types.ErrInvalidEnvironmentVariables, fmt.Sprintf("unknown CNI_COMMAND: %q", command), "")
	}
	if a.netns == "" && command != "DEL" {
		return a, types.NewError(types.ErrInvalidEnvironmentVariables, "required env variables [CNI_NETNS] missing", "")
	}
	if err := utils.ValidateContainerID(a.container); err != nil {
		return a, err
	}
	if err := utils.ValidateInterfaceName(a.ifname); err != nil {
		return a, err
	}
	if c.confErr != nil {
		message := fmt.Sprintf("parse network configuration: %v", c.confErr)
		return a, types.NewError(types.ErrDecodingFailure, message, "")
	}
	if err := utils.ValidateNetworkName(c.conf.Name); err != nil {
		return a, err
	}
	if err := (&version.Reconciler{}).Check(c.conf.CNIVersion, versions); err != nil {
		return a, types.NewError(types.ErrIncompatibleCNIVersion, "incompatible CNI versions", err.Details())
	}
	if command == "DEL" { // DEL does not enter the namespace
		return a, nil
	}
	if host, err := isHost(a.netns); err != nil {
		return a, err
	} else if host {
		return a, types.NewError(types.ErrInvalidNetNS, "CNI_NETNS is the host's network namespace", "")
	}
	return a, nil
}

// isHost reports whether the path is that of the thread's network namespace.
func isHost(path string) (bool, error) {
	var target, own unix.Stat_t
	if unix.Stat(path, &target) != nil { // it is gone: the command reports that
		return false, nil
	}
	if err := unix.Stat("/proc/thread-self/ns/net", &own); err != nil {
		return false, fmt.Errorf("stat the network namespace: %w", err)
	}
	return target.Dev == own.Dev && target.Ino == own.Ino, nil
}

// failure is the answer of the protocol to an error.
func failure(err error) answer {
	cause := (*types.Error)(nil)
	if !errors.As(err, &cause) {
		cause = types.NewError(types.ErrInternal, err.Error(), "")
	}
	output, err := json.MarshalIndent(cause, "", "    ")
	if err != nil {
		output = nil // impossible: three strings and numbers
	}
	return answer{code: 1, output: output}
}
