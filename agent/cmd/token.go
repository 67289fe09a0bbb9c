package cmd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/mdp/qrterminal/v3"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"
	"k8s.io/cluster-bootstrap/util/secrets"
	"k8s.io/cluster-bootstrap/util/tokens"
	"k8s.io/utils/clock"

	"monopod/agent/cmd/commandline"
	"monopod/apiserver/auth"
	"monopod/apiserver/kit/bootstraptoken"
	"monopod/apiserver/kit/local"
	"monopod/apiserver/status"
)

type tokenOptions struct {
	local.Place
	clock       clock.PassiveClock
	ttl         time.Duration
	uses        int
	description string
	server      string
	kubeconfig  string
}

// tokenCommand is `monopod token`, which manages the bootstrap tokens with which machines join the cluster. dataDir is
// the default of --data-dir.
func tokenCommand(dataDir string) *cobra.Command {
	c := &tokenOptions{Place: local.Place{DataDir: dataDir}, clock: clock.RealClock{}}
	root := &cobra.Command{Use: "token", GroupID: Maintain, Short: "Manage the tokens with which other machines join"}
	c.Flags(root.PersistentFlags())
	create := &cobra.Command{
		Use: "create", Args: cobra.NoArgs, RunE: c.create,
		Short: "Create a token, and print the command for the machine that joins",
		Long: "create stores a bootstrap token and the roles that new nodes need, and prints one line: the command to run\n" +
			"on the other machine. On a terminal it also shows the line as a QR code. Whoever has the token can add a node\n" +
			"until it expires, but cannot take over an existing one.",
		Example: "  monopod token create --uses 1\n  monopod token create --ttl 1h --description 'the box at the gate'\n" +
			"  monopod token create --server https://box.example.com:6443\n" +
			"  monopod token create --bootstrap-kubeconfig bootstrap.kubeconfig   # for a kubelet",
	}
	f := create.Flags()
	f.DurationVar(&c.ttl, "ttl", 24*time.Hour, "Time after which the token expires. 0: it never expires.")
	f.IntVar(&c.uses, "uses", 0, "Maximum number of machines that can join with the token. 0: no limit.")
	f.StringVar(&c.description, "description", "", "What the token is for; token list shows it.")
	f.StringVar(&c.server, "server", "",
		"Address at which the machine reaches the server, as https://HOST:PORT (default the address that the server "+
			"listens on, or with --listen=0.0.0.0:6443 that of the default route).")
	f.StringVar(&c.kubeconfig, "bootstrap-kubeconfig", "",
		"File to which a kubeconfig with the token is written, for kubelet --bootstrap-kubeconfig. -: standard output, "+
			"instead of the command.")
	root.AddCommand(create,
		&cobra.Command{Use: "list", Args: cobra.NoArgs, RunE: c.list,
			Short: "List the tokens without their secrets, and when they expire"},
		&cobra.Command{Use: "delete ID|TOKEN...", Args: cobra.MinimumNArgs(1), RunE: c.delete,
			Short: "Delete tokens, so that no machine can join with them; nodes that joined stay"})
	return root
}

// tokenSecrets is the path of the Secrets that contain the tokens.
const tokenSecrets = "/api/v1/namespaces/" + metav1.NamespaceSystem + "/secrets"

func (c *tokenOptions) create(cmd *cobra.Command, _ []string) error {
	switch {
	case c.ttl < 0:
		return fmt.Errorf("--ttl must not be negative, got %v", c.ttl)
	case c.uses < 0:
		return fmt.Errorf("--uses must not be negative, got %d", c.uses)
	}
	server, err := c.Open()
	if err != nil {
		return err
	}
	address, err := c.address(cmd.Context(), server)
	if err != nil {
		return err
	}
	authority, hash, err := clusterAuthority(cmd.Context(), server)
	if err != nil {
		return err
	}
	token, err := bootstraputil.GenerateBootstrapToken()
	if err != nil {
		return err
	}
	if err := ensureNodeRoles(cmd.Context(), server); err != nil {
		return err
	}
	if err := post(cmd.Context(), server, tokenSecrets, c.secret(token)); err != nil {
		return err
	}
	if c.kubeconfig != "" {
		data, err := clientcmd.Write(bootstrapKubeconfig(address, authority, token))
		if err != nil {
			return err
		}
		if c.kubeconfig == "-" {
			_, err = cmd.OutOrStdout().Write(data)
			return err
		}
		if err := auth.WriteSecret(c.kubeconfig, data); err != nil {
			return err
		}
	}
	line := fmt.Sprintf("monopod join %s --token %s --ca-hash %s", address, token, hash)
	fmt.Fprintln(cmd.OutOrStdout(), line)
	if commandline.ToTerminal(cmd.OutOrStdout()) {
		qrterminal.GenerateHalfBlock(line, qrterminal.L, cmd.ErrOrStderr())
	}
	return nil
}

// address returns the URL at which other machines reach the server.
func (c *tokenOptions) address(ctx context.Context, server *local.Server) (string, error) {
	if c.server == "" {
		var about status.Process
		if err := server.JSON(ctx, status.Path, &about); err != nil {
			return "", err
		}
		if about.External == "" {
			return "", errors.New("other machines cannot reach the server: start serve with --listen=0.0.0.0:6443 " +
				"or an address of the machine, or name the address of a proxy with --server")
		}
		return about.External, nil
	}
	u, err := url.Parse(c.server)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.Hostname() == "" || u.User != nil ||
		u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("--server must be https://HOST:PORT, got %q", c.server)
	}
	return "https://" + u.Host, nil
}

// authorityTime is how long create waits for a server that has just started to publish its authority.
const authorityTime = 10 * time.Second

// clusterAuthority returns the authorities of the cluster (PEM), and the hash of the current one, which is the first.
func clusterAuthority(ctx context.Context, server *local.Server) (authority []byte, hash string, err error) {
	ctx, cancel := context.WithTimeout(ctx, authorityTime)
	defer cancel()
	const path = "/api/v1/namespaces/" + metav1.NamespaceSystem + "/configmaps/kube-root-ca.crt"
	var published corev1.ConfigMap
	for err = server.JSON(ctx, path, &published); apierrors.IsNotFound(err); err = server.JSON(ctx, path, &published) {
		select {
		case <-time.After(drainPoll):
		case <-ctx.Done():
			return nil, "", fmt.Errorf("the server does not publish its certificate authority: %w", err)
		}
	}
	if err != nil {
		return nil, "", err
	}
	authority = []byte(published.Data["ca.crt"])
	if hash, err = auth.CAHashPEM(authority); err != nil {
		return nil, "", fmt.Errorf("the ConfigMap kube-system/kube-root-ca.crt: %w", err)
	}
	return authority, hash, nil
}

// secret returns the Secret of a token, as kubeadm creates it.
func (c *tokenOptions) secret(token string) *corev1.Secret {
	id, secret, _ := tokens.ParseToken(token) // it was just generated
	data := map[string]string{
		bootstrapapi.BootstrapTokenIDKey:               id,
		bootstrapapi.BootstrapTokenSecretKey:           secret,
		bootstrapapi.BootstrapTokenUsageAuthentication: "true",
		bootstrapapi.BootstrapTokenUsageSigningKey:     "true",
		bootstrapapi.BootstrapTokenExtraGroupsKey:      bootstraptoken.Group,
	}
	if c.ttl > 0 {
		data[bootstrapapi.BootstrapTokenExpirationKey] = c.clock.Now().Add(c.ttl).UTC().Format(time.RFC3339)
	}
	if c.uses > 0 {
		data[bootstraptoken.UsesKey] = strconv.Itoa(c.uses)
	}
	if c.description != "" {
		data[bootstrapapi.BootstrapTokenDescriptionKey] = c.description
	}
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: bootstraputil.BootstrapTokenSecretName(id)},
		Type:       bootstrapapi.SecretTypeBootstrapToken,
		StringData: data,
	}
}

// bootstrapKubeconfig returns the kubeconfig of a kubelet that has no certificate yet, with kubeadm's names.
func bootstrapKubeconfig(address string, authority []byte, token string) clientcmdapi.Config {
	const cluster, user = "kubernetes", "tls-bootstrap-token-user"
	return clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{cluster: {Server: address, CertificateAuthorityData: authority}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{user + "@" + cluster: {Cluster: cluster, AuthInfo: user}},
		CurrentContext: user + "@" + cluster,
	}
}

// post creates an object.
func post(ctx context.Context, server *local.Server, path string, obj any) error {
	return send(ctx, server, http.MethodPost, path, obj)
}

// send sends an object and ignores the one in the response.
func send(ctx context.Context, server *local.Server, method, path string, obj any) error {
	body, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	resp, err := server.Do(ctx, method, path, body)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func (c *tokenOptions) list(cmd *cobra.Command, _ []string) error {
	server, err := c.Open()
	if err != nil {
		return err
	}
	var all corev1.SecretList
	query := url.Values{"fieldSelector": {"type=" + string(bootstrapapi.SecretTypeBootstrapToken)}}
	if err := server.JSON(cmd.Context(), tokenSecrets+"?"+query.Encode(), &all); err != nil {
		return err
	}
	return printTokens(cmd.OutOrStdout(), all.Items, c.clock.Now())
}

// printTokens prints the tokens in the order in which they expire, those that never do last.
func printTokens(out io.Writer, all []corev1.Secret, now time.Time) error {
	slices.SortFunc(all, func(a, b corev1.Secret) int {
		ends := func(s *corev1.Secret) string {
			return cmp.Or(secrets.GetData(s, bootstrapapi.BootstrapTokenExpirationKey), "never")
		}
		return cmp.Or(cmp.Compare(ends(&a), ends(&b)), cmp.Compare(a.Name, b.Name))
	})
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tTTL\tUSES\tDESCRIPTION")
	for i := range all {
		s := &all[i]
		uses := "unlimited"
		if left, limited := bootstraptoken.Uses(s); limited {
			uses = strconv.Itoa(left)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", secrets.GetData(s, bootstrapapi.BootstrapTokenIDKey), timeLeft(s, now), uses,
			secrets.GetData(s, bootstrapapi.BootstrapTokenDescriptionKey))
	}
	return w.Flush()
}

// timeLeft returns how long a token remains valid.
func timeLeft(token *corev1.Secret, now time.Time) string {
	switch left, expired := secrets.GetExpiration(token, now); {
	case expired:
		return "expired"
	case left == 0:
		return "never"
	default:
		return duration.HumanDuration(left)
	}
}

func (c *tokenOptions) delete(cmd *cobra.Command, args []string) error {
	var ids []string
	for _, arg := range args {
		id := arg
		if full, _, err := tokens.ParseToken(arg); err == nil {
			id = full
		}
		if !bootstraputil.IsValidBootstrapTokenID(id) {
			return errors.New("a token is given by its ID, six lower-case letters and digits, or as ID.SECRET: " +
				"monopod token list shows the IDs") // without the argument, which may contain a secret
		}
		ids = append(ids, id)
	}
	server, err := c.Open()
	if err != nil {
		return err
	}
	for _, id := range ids {
		resp, err := server.Do(cmd.Context(), http.MethodDelete,
			tokenSecrets+"/"+bootstraputil.BootstrapTokenSecretName(id), nil)
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("bootstrap token %s not found: monopod token list shows those that exist", id)
		}
		if err != nil {
			return err
		}
		if err := resp.Body.Close(); err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "bootstrap token %s deleted\n", id)
	}
	return nil
}
