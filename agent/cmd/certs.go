package cmd

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/local"
)

type certsOptions struct {
	dir       string
	authority bool
}

// certsCommand is `monopod certs`, which lists and replaces the certificates and tokens of a data folder, whether
// monopod runs on it or not.
func certsCommand(dataDir string) *cobra.Command {
	c := &certsOptions{}
	root := &cobra.Command{Use: "certs", Short: "List and replace certificates and tokens", GroupID: Maintain}
	root.PersistentFlags().StringVar(&c.dir, "data-dir", dataDir, "Data folder of the server, as given to serve.")
	rotate := &cobra.Command{
		Use: "rotate", Args: cobra.NoArgs, RunE: c.rotate,
		Short: "Replace certificates and tokens, even while monopod runs; the old ones become invalid",
		Long: "rotate replaces the certificates of the server and the admin and the tokens in pki/, and updates\n" +
			"admin.kubeconfig. Service account tokens stay valid.",
	}
	rotate.Flags().BoolVar(&c.authority, "ca", false,
		"Also create a new certificate authority. Monopod must be stopped, and clients need the new authority.")
	root.AddCommand(rotate, &cobra.Command{
		Use: "list", Args: cobra.NoArgs, RunE: c.list, Short: "List the certificates and when they expire"})
	return root
}

func (c *certsOptions) rotate(cmd *cobra.Command, _ []string) error {
	method := http.MethodPost
	if c.authority {
		method = http.MethodGet // finds out whether monopod runs
	}
	all, err := c.request(cmd.Context(), method)
	switch running := !local.Stopped(err); {
	case running && err != nil:
		return err
	case running && c.authority:
		return errors.New("--ca: monopod is running on this data folder: stop it first")
	case running:
		return printCertificates(cmd.OutOrStdout(), all)
	}
	if _, err := c.read(); err != nil { // not a data folder
		return err
	}
	if c.authority {
		if err := auth.NewAuthority(c.pki()); err != nil {
			return err
		}
	}
	if err := auth.Forget(c.pki()); err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), "monopod creates certificates and tokens when it starts")
	return nil
}

func (c *certsOptions) pki() string { return filepath.Join(c.dir, "pki") }

func (c *certsOptions) list(cmd *cobra.Command, _ []string) error {
	all, err := c.request(cmd.Context(), http.MethodGet)
	if local.Stopped(err) {
		all, err = c.read()
	}
	if err != nil {
		return err
	}
	return printCertificates(cmd.OutOrStdout(), all)
}

func printCertificates(to io.Writer, all []auth.Certificate) error {
	w := tabwriter.NewWriter(to, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tSUBJECT\tEXPIRES")
	for _, one := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\n", one.Name, one.Subject, one.NotAfter.Format(time.RFC3339))
	}
	return w.Flush()
}

// read reads the certificates from the files; it fails on a folder that is not a data folder.
func (c *certsOptions) read() (all []auth.Certificate, err error) {
	for _, f := range []struct{ name, file string }{
		{"admin", "admin.crt"}, {"authority", "ca.crt"}, {"authority", "ca.old.crt"},
		{"kubelet-authority", "kubelet-ca.crt"},
	} {
		data, err := os.ReadFile(filepath.Join(c.pki(), f.file))
		if errors.Is(err, os.ErrNotExist) { // created when monopod starts, or when it is needed
			continue
		}
		if err != nil {
			return nil, err
		}
		block, _ := pem.Decode(data)
		if block == nil {
			return nil, fmt.Errorf("%s: no PEM block found", f.file)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.file, err)
		}
		all = append(all, auth.CertificateOf(f.name, cert))
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s contains no certificates: not a data folder; name another one with --data-dir", c.pki())
	}
	return all, nil
}

// request sends a request to the monopod that runs on the folder.
func (c *certsOptions) request(ctx context.Context, method string) (all []auth.Certificate, err error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://monopod"+auth.CertificatesPath, nil)
	if err != nil {
		return nil, err
	}
	resp, err := local.Transport(c.dir).RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("monopod answered %s", resp.Status)
	}
	return all, json.NewDecoder(resp.Body).Decode(&all)
}
