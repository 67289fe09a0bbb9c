package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/agent"
	"monopod/agent/join"
	"monopod/agent/offline"
	"monopod/apiserver/kit/guard"
	"monopod/apiserver/kit/local"
	"monopod/apiserver/kit/words"
)

// joinedPath is the path of the report on the socket of monopod join.
const joinedPath = "/monopod/join"

// joinedReport is the state of a node that has joined.
type joinedReport struct {
	Node    string    `json:"node"`
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	Servers []string  `json:"servers"`
	// Away is when the servers stopped answering; nil: one answers.
	Away *time.Time `json:"away,omitempty"`
	// Problems are what keeps the node from running pods.
	Problems []string `json:"problems,omitempty"`
}

// joined answers commands on the machine of a node that has joined.
type joined struct {
	node     *agent.Node
	name     string
	version  string
	started  time.Time
	identity *join.Identity
	servers  *offline.Client
}

// problems returns what keeps the node from running pods.
func (j *joined) problems(ctx context.Context) (all []string) {
	if _, err := j.node.Find(j.name); err != nil {
		all = append(all, err.Error())
	}
	for _, check := range j.node.Checks() {
		if err := check.Ask(ctx); err != nil {
			all = append(all, check.Name+": "+err.Error())
		}
	}
	return all
}

// ready returns an error while the node cannot run pods. The servers may be away.
func (j *joined) ready(ctx context.Context) error {
	if all := j.problems(ctx); len(all) > 0 {
		return errors.New(strings.Join(all, "; "))
	}
	return nil
}

// ServeHTTP implements http.Handler.
func (j *joined) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != joinedPath {
		refusal := apierrors.NewBadRequest("this machine is a node that has joined: " +
			"run the command on the machine of its server")
		refusal.ErrStatus.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(refusal.ErrStatus) // fails if the client is gone
		return
	}
	report := joinedReport{Node: j.name, Version: j.version, PID: os.Getpid(), Started: j.started,
		Servers: j.identity.Servers(), Problems: j.problems(r.Context())}
	if since := j.servers.Away(); !since.IsZero() {
		report.Away = &since
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(report) // fails if the client is gone
}

// serve answers on the socket of the data folder until ctx ends.
func (j *joined) serve(ctx context.Context, dataDir string) error {
	l, err := local.Listen(dataDir)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: j, ReadHeaderTimeout: time.Second, ReadTimeout: time.Second}
	group, ctx := guard.With(ctx)
	group.Do(func() error {
		<-ctx.Done()
		return srv.Close()
	})
	group.Do(func() error {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	return group.Wait()
}

// readJoined asks the monopod join that runs on a data folder.
func readJoined(ctx context.Context, server *local.Server) (r joinedReport, err error) {
	err = server.JSON(ctx, joinedPath, &r)
	return r, err
}

// print prints the report on one screen.
func (r joinedReport) print(out io.Writer, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	state := "runs its pods"
	if len(r.Problems) > 0 {
		state = "is NOT ready: " + strings.Join(r.Problems, "; ")
	}
	fmt.Fprintf(out, "This machine is node %s of another machine's cluster, and %s.\n\n", r.Node, state)
	fmt.Fprintf(w, "  process\tmonopod join %s, pid %d, up %s\n", r.Version, r.PID, words.Ago(now.Sub(r.Started)))
	fmt.Fprintf(w, "  servers\t%s\n", strings.Join(r.Servers, ", "))
	connection := "a server answers"
	if r.Away != nil {
		connection = fmt.Sprintf("no server has answered for %s; the pods run on", words.Ago(now.Sub(*r.Away)))
	}
	fmt.Fprintf(w, "  connection\t%s\n", connection)
	return w.Flush()
}
