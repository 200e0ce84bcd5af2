// provider PORT: a dubbo-go provider of shop.Shop and g1/shop.Shop:1.0.0 with hessian2; ends when its input ends.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/apache/dubbo-go-hessian2/java_exception"

	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/protocol"
	"dubbo.apache.org/dubbo-go/v3/server"

	"shop/api"
)

// Shop is the service; dubbo-go insists on an exported type, and takes two with one reference for one.
type Shop struct{ key string }

func (s *Shop) Reference() string { return s.key }

// MethodMapper maps Go names to the names on the wire.
func (*Shop) MethodMapper() map[string]string {
	return map[string]string{
		"Hello": "hello", "Label": "label", "Fail": "fail", "Refuse": "refuse", "Nap": "nap", "Context": "context",
	}
}

func (*Shop) Hello(_ context.Context, name string) (string, error) {
	return "hello " + name + " from go", nil
}

func (*Shop) Label(_ context.Context, l *api.Label) (*api.Label, error) {
	return &api.Label{Text: l.Text + "!", Count: l.Count + 1, Words: l.Words}, nil
}

// Fail returns a plain Go error, java.lang.Throwable on the wire.
func (*Shop) Fail(_ context.Context, why string) (string, error) { return "", errors.New(why) }

// Refuse returns a Java exception.
func (*Shop) Refuse(_ context.Context, why string) (string, error) {
	return "", java_exception.NewIllegalArgumentException(why)
}

func (*Shop) Nap(_ context.Context, ms int32) (string, error) {
	time.Sleep(time.Duration(ms) * time.Millisecond)
	return fmt.Sprintf("napped %d", ms), nil
}

// Context returns the attachments of the request.
func (*Shop) Context(ctx context.Context) (map[string]string, error) {
	seen := map[string]string{}
	if m, ok := ctx.Value(constant.DubboCtxKey("attachment")).(map[string]any); ok {
		for k, v := range m {
			seen[k] = fmt.Sprint(v)
		}
	}
	return seen, nil
}

func main() {
	port, err := strconv.Atoi(os.Args[1])
	check(err)
	// No address of its own: dubbo-go exports its metadata service on :PORT too and panics when the two differ.
	srv, err := server.NewServer(server.WithServerProtocol(protocol.WithDubbo(), protocol.WithPort(port)))
	check(err)
	offer := func(group, version string) {
		check(srv.Register(&Shop{key: group + "/" + api.Interface}, nil, server.WithInterface(api.Interface),
			server.WithGroup(group), server.WithVersion(version), server.WithNotRegister(),
			server.WithSerialization(constant.Hessian2Serialization)))
	}
	offer("", "")
	offer(api.Group, api.Version)
	go ready(port)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	check(srv.Serve())
}

// ready says so once the port takes connections: Serve does not return and tells nobody.
func ready(port int) {
	for {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = conn.Close()
			fmt.Println("READY")
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
