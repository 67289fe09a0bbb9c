package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"monopod/agent/cmd/commandline"
	"monopod/apiserver/kit/guard"
	"monopod/apiserver/kit/images"
	"monopod/apiserver/kit/local"
	"monopod/apiserver/kit/words"
)

type imagesOptions struct {
	local.Place
	node   string
	output commandline.Output
	force  bool
	file   string
}

// flags adds the flags of every command.
func (c *imagesOptions) flags(f *pflag.FlagSet) {
	c.Place.Flags(f)
	f.StringVar(&c.node, "node", "", "Name of the node (default the server's own node).")
}

// nodeImages sends requests about the images of one node.
type nodeImages struct {
	*local.Server
	path string
}

func (c *imagesOptions) open() (nodeImages, error) {
	server, err := c.Open()
	return nodeImages{server, c.path()}, err
}

// path returns the API server's path of the node's images.
func (c *imagesOptions) path() string {
	if c.node == "" {
		return images.Path
	}
	return "/api/v1/nodes/" + url.PathEscape(c.node) + "/proxy" + images.Path
}

// imagesCommand is `monopod images`, which shows and changes the images of a running node. dataDir is the default
// of --data-dir.
func imagesCommand(dataDir string) *cobra.Command {
	root := &cobra.Command{
		Use:     "images",
		GroupID: Look,
		Short:   "Show, import, remove, save and pull the images of a node",
		Long: "images asks a running server, with the rights of an admin, to show or change the images of its own node or,\n" +
			"with --node, of one that has joined. It works with any container runtime, and from other machines with\n" +
			"--kubeconfig.",
		Example: "  monopod images ls\n  monopod images import app.tar\n  docker save app:1 | monopod images import -",
		Args:    cobra.NoArgs,
	}
	for _, make := range []func(*imagesOptions) *cobra.Command{
		imagesList, imagesImport, imagesRemove, imagesSave, imagesPull,
	} {
		c := &imagesOptions{Place: local.Place{DataDir: dataDir}}
		sub := make(c)
		c.flags(sub.Flags())
		if sub.Name() == "rm" || sub.Name() == "save" {
			sub.ValidArgsFunction = completeImages(c)
		}
		root.AddCommand(sub)
	}
	return root
}

func imagesList(c *imagesOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls", Short: "List the images of the node with their sizes and the pods that use them", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.output.Check(); err != nil {
				return err
			}
			server, err := c.open()
			if err != nil {
				return err
			}
			var list images.List
			if err := server.JSON(cmd.Context(), server.path, &list); err != nil {
				return err
			}
			if c.output.JSON() {
				return commandline.PrintJSON(cmd.OutOrStdout(), list)
			}
			return printImages(cmd.OutOrStdout(), list.Images)
		},
	}
	c.output.Flags(cmd.Flags(), ", an object with the list images")
	return cmd
}

// printImages prints a line for each name of an image.
func printImages(out io.Writer, list []images.Image) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "IMAGE\tSIZE\tPINNED\tUSED BY")
	var total int64
	for _, i := range list {
		total += i.Bytes
		name, pinned, users := strings.TrimPrefix(i.ID, "sha256:"), "", "-"
		name = name[:min(12, len(name))]
		if len(i.Names) > 0 {
			name = i.Names[0]
		}
		if i.Pinned {
			pinned = "yes"
		}
		if len(i.Users) > 0 {
			users = strings.Join(i.Users, ", ")
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", name, words.Bytes(i.Bytes), pinned, users)
		for _, name := range i.Names[min(1, len(i.Names)):] {
			fmt.Fprintf(w, "%s\t\t\t\n", name)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%s, %s\n", words.Count(len(list), "image"), words.Bytes(total))
	return err
}

func imagesImport(c *imagesOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "import FILE...",
		Short: "Import image archives: OCI or docker format, .tar, .tar.gz or .tar.zst; - is standard input",
		Long: "import sends archives, as docker save and skopeo write them, to the node. Their images are pinned: no\n" +
			"garbage collection removes them. Containers that wait for one of them start at once.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			server, err := c.open()
			if err != nil {
				return err
			}
			var errs []error // after a failure, the other files are imported
			for _, file := range files {
				names, err := importArchive(cmd, server, file)
				if err != nil {
					errs = append(errs, fmt.Errorf("import %s: %w", file, err))
				}
				for _, name := range names {
					fmt.Fprintln(cmd.OutOrStdout(), "imported", name)
				}
				if cmd.Context().Err() != nil {
					break
				}
			}
			return errors.Join(errs...)
		},
	}
}

// importArchive imports an archive, shows its progress, and returns the names of its images.
func importArchive(cmd *cobra.Command, server nodeImages, file string) ([]string, error) {
	from, size := cmd.InOrStdin(), int64(-1)
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			err = errors.Unwrap(err) // the caller adds the file
			return nil, fmt.Errorf("%w; name an archive, as docker save writes it, or - for standard input", err)
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			return nil, errors.New("not a file; name an archive, as docker save writes it")
		}
		from, size = f, info.Size()
	}
	progress := commandline.NewProgress(cmd.ErrOrStderr(), "importing "+filepath.Base(file), size, words.Bytes)
	defer progress.End()
	resp, err := server.Send(cmd.Context(), http.MethodPost, server.path, io.TeeReader(from, progress), size)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var imported images.Imported
	if err := json.NewDecoder(resp.Body).Decode(&imported); err != nil {
		return nil, err
	}
	return imported.Names, nil
}

func imagesRemove(c *imagesOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rm IMAGE...",
		Short: "Remove images from the node; those that pods use only with --force",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			server, err := c.open()
			if err != nil {
				return err
			}
			q := url.Values{"name": names}
			if c.force {
				q.Set("force", "true")
			}
			resp, err := server.Do(cmd.Context(), http.MethodDelete, server.path+"?"+q.Encode(), nil)
			if err != nil {
				return err
			}
			for _, name := range names {
				fmt.Fprintln(cmd.OutOrStdout(), "removed", name)
			}
			return resp.Body.Close()
		},
	}
	cmd.Flags().BoolVar(&c.force, "force", false,
		"Also remove images that pods use: their containers keep running, but cannot be started again without a pull.")
	return cmd
}

func imagesSave(c *imagesOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "save IMAGE... -f FILE",
		Short: "Save images as one OCI archive, for monopod images import or docker load",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			if c.file == "" {
				return errors.New("--file is required: name the archive to write, or - for standard output")
			}
			if info, err := os.Stat(c.file); err == nil && info.IsDir() {
				return fmt.Errorf("%s is a folder: name the archive to write with --file", c.file)
			}
			server, err := c.open()
			if err != nil {
				return err
			}
			resp, err := server.Do(cmd.Context(), http.MethodGet, server.path+"?"+url.Values{"save": names}.Encode(), nil)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			return c.write(cmd, resp.Body)
		},
	}
	cmd.Flags().StringVarP(&c.file, "file", "f", "",
		"Archive to write; - is standard output. An existing file is replaced.")
	return cmd
}

// write writes an archive under a temporary name and renames it, so that the file is always complete.
func (c *imagesOptions) write(cmd *cobra.Command, from io.Reader) error {
	if c.file == "-" {
		_, err := io.Copy(cmd.OutOrStdout(), from)
		return err
	}
	progress := commandline.NewProgress(cmd.ErrOrStderr(), "saving "+filepath.Base(c.file), 0, words.Bytes)
	defer progress.End()
	out, err := os.CreateTemp(filepath.Dir(c.file), "."+filepath.Base(c.file)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name()) // fails after the rename
	n, err := io.Copy(io.MultiWriter(out, progress), from)
	err = errors.Join(err, out.Chmod(0o644), out.Sync(), out.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(out.Name(), c.file); err != nil {
		return err
	}
	progress.End()
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "saved %s, %s\n", c.file, words.Bytes(n))
	return err
}

func imagesPull(c *imagesOptions) *cobra.Command {
	return &cobra.Command{
		Use: "pull IMAGE...", Short: "Pull images with the credentials of the node", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			server, err := c.open()
			if err != nil {
				return err
			}
			for _, name := range names {
				if err := pullOne(cmd, server, name); err != nil {
					return fmt.Errorf("pull %s: %w", name, err)
				}
			}
			return nil
		},
	}
}

func pullOne(cmd *cobra.Command, server nodeImages, name string) error {
	progress := commandline.NewProgress(cmd.ErrOrStderr(), "pulling "+name, 0, words.Bytes)
	defer progress.End()
	if progress.Shown() {
		ctx, cancel := context.WithCancel(cmd.Context())
		over := guard.Spawn(func() error {
			showPullProgress(ctx, server, name, progress)
			return nil
		})
		defer func() {
			cancel()
			<-over //nolint:errcheck // a panic, which the guard has reported
		}()
	}
	resp, err := server.Do(cmd.Context(), http.MethodPost, server.path+"?"+url.Values{"pull": {name}}.Encode(), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var pulled images.Image
	if err := json.NewDecoder(resp.Body).Decode(&pulled); err != nil {
		return err
	}
	progress.End()
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "pulled %s, %s\n", name, words.Bytes(pulled.Bytes))
	return err
}
