package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

// cluster is the scraped cluster: the API server through kubectl, the node at its port.
type cluster struct {
	node   string // https://address:port
	token  string
	client *http.Client
}

func newCluster(ctx context.Context, tokenFile string) (*cluster, error) {
	token, err := os.ReadFile(tokenFile)
	if err != nil {
		return nil, err
	}
	var node object
	if err := get(ctx, &node, "node", "node1"); err != nil {
		return nil, err
	}
	var root object
	if err := get(ctx, &root, "configmap", "kube-root-ca.crt", "-n", "kube-system"); err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(root.Data["ca.crt"])) {
		return nil, errors.New("kube-root-ca.crt has no certificate")
	}
	return &cluster{
		node:  fmt.Sprintf("https://127.0.0.1:%d", node.Status.DaemonEndpoints.KubeletEndpoint.Port),
		token: strings.TrimSpace(string(token)),
		client: &http.Client{Timeout: 30 * time.Second,
			Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "node1"}}},
	}, nil
}

// kubectl runs kubectl and returns its output.
func kubectl(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "kubectl", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, &stderr)
	}
	return out, nil
}

func get(ctx context.Context, into any, args ...string) error {
	out, err := kubectl(ctx, append(append([]string{"get"}, args...), "-o", "json")...)
	if err != nil {
		return err
	}
	return json.Unmarshal(out, into)
}

// work sends every kind of request, and makes pods use CPU and the network, so that rates are not empty.
func (c *cluster) work(ctx context.Context) error {
	commands := [][]string{
		{"get", "pods", "-A"}, {"create", "configmap", "written"}, {"annotate", "configmap", "written", "a=b"},
		{"get", "configmap", "written"}, {"delete", "configmap", "written"},
	}
	var pods object
	if err := get(ctx, &pods, "pods", "-l", "app=web"); err != nil {
		return err
	}
	for _, p := range pods.Items {
		commands = append(commands,
			[]string{"exec", p.Metadata.Name, "--", "/web", "tick", "50", "1ms"},
			[]string{"get", "--raw", "/api/v1/namespaces/default/pods/" + p.Metadata.Name + ":8080/proxy/"})
	}
	for _, args := range commands {
		if _, err := kubectl(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// scrape adds the samples of all targets.
func (c *cluster) scrape(ctx context.Context, db *memory, at time.Time) error {
	api, err := kubectl(ctx, "get", "--raw", "/metrics")
	if err != nil {
		return err
	}
	if err := expose(db, at, api, "job", "apiserver", "instance", "api"); err != nil {
		return err
	}
	for path, job := range map[string]string{"/metrics": "kubelet", "/metrics/cadvisor": "cadvisor",
		"/metrics/resource": "resource", "/metrics/probes": "probes"} {
		text, err := c.ask(ctx, path)
		if err != nil {
			return err
		}
		if err := expose(db, at, text, "job", job, "metrics_path", path, "instance", "node1:10250", "node",
			"node1"); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if err := stateMetrics(ctx, db, at); err != nil {
		return err
	}
	return nodeExporter(db, at)
}

func (c *cluster) ask(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, "GET", c.node+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 32<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, text)
	}
	return text, err
}

// expose adds the samples of one target, with the target's labels.
func expose(db *memory, at time.Time, text []byte, target ...string) error {
	p := textparse.NewPromParser(text, labels.NewSymbolTable(), false)
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if entry != textparse.EntrySeries {
			continue
		}
		_, _, value := p.Series()
		var l labels.Labels
		p.Labels(&l)
		b := labels.NewBuilder(l)
		for i := 0; i < len(target); i += 2 {
			b.Set(target[i], target[i+1])
		}
		db.add(b.Labels(), at, value)
	}
	db.add(labels.FromStrings(append([]string{labels.MetricName, "up"}, target...)...), at, 1)
	return nil
}
