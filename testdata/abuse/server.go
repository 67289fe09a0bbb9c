package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"monopod/testdata/abuse/hostile"
)

// server is the server under test, with its administrator.
type server struct {
	url       *url.URL
	pid       int
	admin     user
	adversary *adversary // the server that configurations name
}

// user sends requests with a token.
type user struct {
	name, token string
	http        *http.Client
}

// open returns the server of a data folder, from its kubeconfig and its socket.
func open(dataDir string) (*server, error) {
	data, err := os.ReadFile(filepath.Join(dataDir, "admin.kubeconfig"))
	if err != nil {
		return nil, err
	}
	var config struct {
		Clusters []struct{ Cluster struct{ Server string } }
		Users    []struct{ User struct{ Token string } }
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		return nil, err
	}
	if len(config.Clusters) == 0 || len(config.Users) == 0 {
		return nil, errors.New("admin.kubeconfig contains no server or no user")
	}
	u, err := url.Parse(config.Clusters[0].Cluster.Server)
	if err != nil {
		return nil, err
	}
	pid, err := listener(filepath.Join(dataDir, "monopod.sock"))
	return &server{url: u, pid: pid, admin: newUser("admin", config.Users[0].User.Token)}, err
}

// listener returns the PID of the process that listens at socket.
func listener(socket string) (pid int, err error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) { peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, failed); err != nil {
		return 0, err
	}
	return int(peer.Pid), nil
}

func newUser(name, token string) user {
	return user{name: name, token: token, http: &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, DisableCompression: true,
		IdleConnTimeout: 5 * time.Second,
	}}}
}

// do sends a request and reads the whole response.
func (s *server) do(ctx context.Context, u user, method, path, contentType string, body []byte) (int, []byte, error) {
	return s.ask(ctx, u, use{method: method, path: path, contentType: contentType, body: string(body)})
}

// ask is do with an Accept header.
func (s *server) ask(ctx context.Context, u user, r use) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, r.method, s.url.String()+r.path, strings.NewReader(r.body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+u.token)
	for name, value := range map[string]string{"Content-Type": r.contentType, "Accept": r.accept} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	resp, err := u.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, data, err
}

// want sends a request as the administrator, and fails if it does not succeed. A conflict counts as success.
func (s *server) want(ctx context.Context, method, path, body string) ([]byte, error) {
	code, data, err := s.do(ctx, s.admin, method, path, "application/json", []byte(body))
	if err == nil && code >= 300 && code != http.StatusConflict {
		err = fmt.Errorf("%s %s: %d %.300s", method, path, code, data)
	}
	return data, err
}

const nsPath = "/api/v1/namespaces/" + namespace

// prepare creates the namespace, the target objects of the requests, and the users: two with the role edit in the
// namespace, one with view, one without roles. It returns them after the admin.
func (s *server) prepare(ctx context.Context) ([]user, error) {
	users := []user{s.admin}
	_, err := s.want(ctx, http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"`+namespace+`"}}`)
	if err != nil {
		return nil, err
	}
	for _, c := range []struct{ name, binding string }{
		{"editor", `{"metadata":{"name":"editor"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole",` +
			`"name":"edit"},"subjects":[{"kind":"ServiceAccount","namespace":"abuse","name":"editor"},` +
			`{"kind":"ServiceAccount","namespace":"abuse","name":"other"}]}`},
		{"other", ""},
		{"viewer", `{"metadata":{"name":"viewer"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole",` +
			`"name":"view"},"subjects":[{"kind":"ServiceAccount","namespace":"abuse","name":"viewer"}]}`},
		{"nobody", ""},
	} {
		token, err := s.account(ctx, c.name)
		if err == nil && c.binding != "" {
			_, err = s.want(ctx, http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/namespaces/"+namespace+"/rolebindings",
				c.binding)
		}
		if err != nil {
			return nil, err
		}
		users = append(users, newUser(c.name, token))
	}
	if _, err = s.want(ctx, http.MethodPost, nsPath+"/configmaps",
		`{"metadata":{"name":"target"},"data":{"k":"v"}}`); err != nil {
		return nil, err
	}
	return users, s.define(ctx)
}

// define creates a custom kind and an object. The users with the role edit may write it. The editor may also create
// definitions, policies and webhooks.
func (s *server) define(ctx context.Context) error {
	for path, body := range map[string]string{
		hostile.DefinitionsPath:                           hostile.Definition,
		"/apis/rbac.authorization.k8s.io/v1/clusterroles": `{"metadata":{"name":"things","labels":{"rbac.authorization.k8s.io/aggregate-to-edit":"true"}},"rules":[{"apiGroups":["abuse.io"],"resources":["*"],"verbs":["*"]}]}`,
		"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings": `{"metadata":{"name":"configurer"},` +
			`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"configurer"},` +
			`"subjects":[{"kind":"ServiceAccount","namespace":"abuse","name":"editor"}]}`,
	} {
		if _, err := s.want(ctx, http.MethodPost, path, body); err != nil {
			return err
		}
	}
	const role = `{"metadata":{"name":"configurer"},"rules":[{"apiGroups":["apiextensions.k8s.io",` +
		`"admissionregistration.k8s.io"],"resources":["*"],"verbs":["create"]}]}`
	if _, err := s.want(ctx, http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterroles", role); err != nil {
		return err
	}
	const target = `{"apiVersion":"abuse.io/v1","kind":"Thing","metadata":{"name":"target"}}`
	return s.until(ctx, "things.abuse.io is not served", func() (bool, error) {
		code, _, err := s.do(ctx, s.admin, http.MethodPost, hostile.ThingsPath(namespace), "application/json", []byte(target))
		return code == http.StatusCreated || code == http.StatusConflict, err
	})
}

// until calls done until it returns true, for at most two minutes.
func (s *server) until(ctx context.Context, otherwise string, done func() (bool, error)) error {
	for until := time.Now().Add(2 * time.Minute); ; {
		ok, err := done()
		switch {
		case err != nil || ok:
			return err
		case time.Now().After(until):
			return fmt.Errorf("after two minutes, %s", otherwise)
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// account creates a service account and returns a token.
func (s *server) account(ctx context.Context, name string) (string, error) {
	if _, err := s.want(ctx, http.MethodPost, nsPath+"/serviceaccounts", `{"metadata":{"name":"`+name+`"}}`); err != nil {
		return "", err
	}
	data, err := s.want(ctx, http.MethodPost, nsPath+"/serviceaccounts/"+name+"/token",
		`{"spec":{"expirationSeconds":86400}}`)
	if err != nil {
		return "", err
	}
	var answer struct{ Status struct{ Token string } }
	return answer.Status.Token, json.Unmarshal(data, &answer)
}

// release removes the finalizer abuse/x from the definitions of a list.
func (s *server) release(ctx context.Context, list []byte) error {
	var all struct {
		Items []metav1.PartialObjectMetadata
	}
	if err := json.Unmarshal(list, &all); err != nil {
		return err
	}
	for _, item := range all.Items {
		left := slices.DeleteFunc(item.Finalizers, func(name string) bool { return name == "abuse/x" })
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": left}})
		if err != nil {
			return err
		}
		if _, _, err := s.do(ctx, s.admin, http.MethodPatch, definitions+"/"+item.Name, "application/merge-patch+json",
			patch); err != nil {
			return err
		}
	}
	return nil
}

// cleanUp deletes the objects that the requests created, and removes their finalizers.
func (s *server) cleanUp(ctx context.Context) error {
	for _, collection := range configured {
		if _, err := s.want(ctx, http.MethodDelete, collection+selector, ""); err != nil {
			return err
		}
	}
	collections := []string{hostile.ThingsPath(namespace)}
	for _, name := range kinds {
		collections = append(collections, nsPath+"/"+name)
	}
	for _, name := range grouped {
		if strings.Contains(name, "/namespaces/") {
			collections = append(collections, "/apis/"+name)
		}
	}
	for _, resource := range collections {
		code, data, err := s.do(ctx, s.admin, http.MethodGet, resource, "", nil)
		if err != nil {
			return err
		}
		if code != http.StatusOK {
			continue // the collection does not exist
		}
		var list struct {
			Items []struct {
				Metadata struct {
					Name       string
					Finalizers []string
				}
			}
		}
		if err := json.Unmarshal(data, &list); err != nil {
			return err
		}
		for _, item := range list.Items {
			if len(item.Metadata.Finalizers) > 0 {
				if _, _, err := s.do(ctx, s.admin, http.MethodPatch, resource+"/"+item.Metadata.Name,
					"application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)); err != nil {
					return err
				}
			}
		}
	}
	if _, err := s.want(ctx, http.MethodDelete, nsPath, ""); err != nil {
		return err
	}
	if err := s.until(ctx, "namespace "+namespace+" still exists", func() (bool, error) {
		code, _, err := s.do(ctx, s.admin, http.MethodGet, nsPath, "", nil)
		return code == http.StatusNotFound, err
	}); err != nil {
		return err
	}
	return s.until(ctx, "custom kinds still exist", func() (bool, error) {
		data, err := s.want(ctx, http.MethodGet, definitions+selector, "")
		if err != nil || strings.Contains(string(data), `"items":[]`) {
			return err == nil, err
		}
		return false, s.release(ctx, data)
	})
}

// rest is the resource usage of an idle server.
type rest struct {
	started                    float64 // in seconds since 1970
	rss, goroutines, fds, open float64
	cpu                        float64 // in percent of a core
	panics                     float64
}

func (r rest) String() string {
	return fmt.Sprintf("RSS %.1f MB, %.0f goroutines, %.0f files, %.0f watches and streams, %.2f %% CPU", r.rss/1e6,
		r.goroutines, r.fds, r.open, r.cpu)
}

// restTime is the duration of the CPU measurement.
const restTime = 10 * time.Second

// atRest measures the resource usage of the server.
func (s *server) atRest(ctx context.Context) (r rest, err error) {
	if err = s.use(ctx, &r); err == nil {
		err = s.count(ctx, &r)
	}
	return r, err
}

// use measures CPU and memory from /proc: after abuse the metrics have megabytes, and a request for them costs CPU.
func (s *server) use(ctx context.Context, r *rest) error {
	process, err := procfs.NewProc(s.pid)
	if err != nil {
		return err
	}
	from, err := process.Stat()
	if err != nil {
		return err
	}
	if err := sleep(ctx, restTime); err != nil {
		return err
	}
	to, err := process.Stat()
	r.rss, r.cpu = float64(to.ResidentMemory()), 100*(to.CPUTime()-from.CPUTime())/restTime.Seconds()
	return err
}

// count reads the other fields from the server's metrics.
func (s *server) count(ctx context.Context, r *rest) error {
	data, err := s.want(ctx, http.MethodGet, "/metrics", "")
	if err != nil {
		return err
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(data))
	sum := func(name string) (total float64) {
		for _, m := range families[name].GetMetric() {
			total += m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
		return total
	}
	r.started, r.goroutines, r.fds = sum("process_start_time_seconds"), sum("go_goroutines"), sum("process_open_fds")
	r.open, r.panics = sum("apiserver_longrunning_requests"), sum("monopod_panics_total")
	return err
}

// settled waits until the server uses about the same resources as before. After c.settle it returns an error that lists
// what grew.
func (s *server) settled(ctx context.Context, before rest, c config) (after rest, err error) {
	for until := time.Now().Add(c.settle); ; {
		after = before
		if err = s.use(ctx, &after); err != nil {
			return after, err
		}
		late := time.Now().After(until)
		if err = after.like(before, c.memory); err != nil && !late {
			continue
		}
		if err = s.count(ctx, &after); err != nil {
			return after, err
		}
		if err = after.like(before, c.memory); err == nil || late {
			return after, err
		}
	}
}

// like returns an error that lists what grew by more than the usual variation between two measurements.
func (r rest) like(before rest, memory float64) error {
	var errs []error
	more := func(what string, is, was, slack float64) {
		if is > was+slack {
			errs = append(errs, fmt.Errorf("%s: %s, was %s", what, short(is), short(was)))
		}
	}
	more("goroutines", r.goroutines, before.goroutines, 10)
	more("open files", r.fds, before.fds, 10)
	more("watches and streams", r.open, before.open, 0)
	more("bytes of RSS", r.rss, before.rss, memory)
	more("percent of CPU", r.cpu, before.cpu, 1)
	more("panics", r.panics, before.panics, 0)
	if r.started != before.started {
		errs = append(errs, errors.New("the server was restarted"))
	}
	return errors.Join(errs...)
}

func short(v float64) string { return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64) }

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
