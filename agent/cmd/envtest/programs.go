package envtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// help lists the flags that have an effect. envtest searches for flags in this text.
func help(name string) string {
	flags := " listen-client-urls data-dir "
	if name == apiServer {
		flags = " bind-address secure-port cert-dir tls-cert-file tls-private-key-file" + passedFlags
	}
	return name + " of monopod, for controller-runtime's envtest. Flags with an effect:\n\n      --" +
		strings.Join(strings.Fields(flags), "\n      --") + "\n"
}

// runAPIServer serves the API. The state is in a new folder, which is removed at the end. After a kill, envtest removes
// it together with the folder of certificates.
func runAPIServer(ctx context.Context, args []string, serve func(ctx context.Context, flags []string) error) error {
	s, err := translate(args)
	if err != nil {
		return err
	}
	if len(s.ignored) > 0 {
		fmt.Fprintf(os.Stderr, "kube-apiserver (monopod): flags without effect: --%s\n", strings.Join(s.ignored, ", --"))
	}
	dir, err := stateFolder(s.certDir)
	if err != nil {
		return err
	}
	err = serve(ctx, append(s.flags, "--data-dir="+dir))
	return errors.Join(err, os.RemoveAll(dir))
}

// maxFolder leaves room for the name of a socket in the 107 bytes of its path.
const maxFolder = 80

// stateFolder creates a folder for the state, in certDir unless that is missing or its path is too long.
func stateFolder(certDir string) (string, error) {
	if certDir, err := filepath.Abs(certDir); err != nil || len(certDir) > maxFolder {
		return os.MkdirTemp("", "monopod-")
	} else if dir, err := os.MkdirTemp(certDir, "s-"); err == nil {
		return dir, nil
	}
	return os.MkdirTemp("", "monopod-")
}

// headerTime limits how long a client of the health check may take to send its request.
const headerTime = 5 * time.Second

// runEtcd answers health checks as etcd does until ctx ends. Nothing is stored.
func runEtcd(ctx context.Context, args []string) error {
	at, err := etcdAddress(args)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", at)
	if err != nil {
		return fmt.Errorf("--listen-client-urls: %w", err)
	}
	server := &http.Server{ReadHeaderTimeout: headerTime,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/health" {
				http.Error(w, "this etcd only answers /health: kube-apiserver of monopod keeps the state itself",
					http.StatusNotFound)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"health":"true","reason":""}`)
		})}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// etcdAddress returns host:port of the first URL of --listen-client-urls.
func etcdAddress(args []string) (string, error) {
	given, err := parse(args)
	if err != nil {
		return "", err
	}
	urls := "http://localhost:2379" // etcd's default
	for _, f := range given {
		if f.name == "listen-client-urls" {
			urls = f.value
		}
	}
	first, _, _ := strings.Cut(urls, ",")
	u, err := url.Parse(first)
	if err != nil || u.Scheme != "http" || u.Host == "" {
		return "", fmt.Errorf("--listen-client-urls: %q is not an http:// URL with a host", first)
	}
	return u.Host, nil
}

// runKubectl replaces this process with the first kubectl in PATH that is not this program.
func runKubectl(argv []string) error {
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		return err
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		path, err := exec.LookPath(filepath.Join(dir, kubectl))
		if err != nil {
			continue
		}
		if info, err := os.Stat(path); err == nil && !os.SameFile(info, self) {
			return syscall.Exec(path, argv, os.Environ())
		}
	}
	return errors.New("executable not found in PATH; install kubectl to use it in tests")
}
