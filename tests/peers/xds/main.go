// An ADS test client, delta or state-of-the-world: prints every response, answers ACK or NACK.
//
//	client [-addr 127.0.0.1:18000] [-mode delta|sotw] [-for 10s] [-v] [-until REGEXP]
//	       [-nack TYPE] [-reconnect 0s] [-unsubscribe TYPE=NAME@2s] [-services KEY,...] TYPE[=NAME,NAME...] ...
//
// TYPE is cds, eds, lds, drds (dubbo_proxy MultipleRouteConfiguration), droute (dubbo_proxy
// RouteConfiguration) or a full type URL. No names: wildcard. With "eds" and no names the client
// asks for the EDS clusters that CDS brings. Exit code 1: -until given and never matched.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/dubbo_proxy/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
)

const prefix = "type.googleapis.com/envoy."

var urls = map[string]string{
	"cds": prefix + "config.cluster.v3.Cluster", "eds": prefix + "config.endpoint.v3.ClusterLoadAssignment",
	"lds":    prefix + "config.listener.v3.Listener",
	"drds":   prefix + "extensions.filters.network.dubbo_proxy.v3.MultipleRouteConfiguration",
	"droute": prefix + "extensions.filters.network.dubbo_proxy.v3.RouteConfiguration",
}

type sub struct {
	short, url string
	names      []string
	known      map[string]string // resource -> version, for initial_resource_versions
	version    string            // sotw: last ACKed
	nonce      string
	sent       bool
}

var (
	start   = time.Now()
	until   *regexp.Regexp
	verbose bool
	outMu   sync.Mutex
)

func say(format string, a ...any) {
	outMu.Lock()
	defer outMu.Unlock()
	line := fmt.Sprintf("%.3f ", time.Since(start).Seconds()) + fmt.Sprintf(format, a...)
	fmt.Println(line)
	if until != nil && until.MatchString(line) {
		os.Exit(0)
	}
}

func summary(r *anypb.Any) (name, text string) {
	m, err := r.UnmarshalNew()
	if err != nil {
		return "", fmt.Sprintf("%d bytes", len(r.GetValue()))
	}
	switch x := m.(type) {
	case *endpoint.ClusterLoadAssignment:
		hosts := []string{}
		for _, l := range x.GetEndpoints() {
			for _, e := range l.GetLbEndpoints() {
				a := e.GetEndpoint().GetAddress().GetSocketAddress()
				hosts = append(hosts, fmt.Sprintf("%s:%d/%s", a.GetAddress(), a.GetPortValue(), e.GetHealthStatus()))
			}
		}
		name, text = x.GetClusterName(), fmt.Sprint(hosts)
	case interface{ GetName() string }:
		name = x.GetName()
	}
	if verbose {
		b, _ := protojson.Marshal(m)
		text += " " + string(b)
	}
	return
}

func edsNames(r *anypb.Any) (string, bool) {
	c := &cluster.Cluster{}
	if r.UnmarshalTo(c) != nil || c.GetType() != cluster.Cluster_EDS {
		return "", false
	}
	if n := c.GetEdsClusterConfig().GetServiceName(); n != "" {
		return n, true
	}
	return c.GetName(), true
}

func main() {
	addr := flag.String("addr", "127.0.0.1:18000", "")
	mode := flag.String("mode", "delta", "delta or sotw")
	dur := flag.Duration("for", 10*time.Second, "")
	re := flag.String("until", "", "exit 0 at the first printed line that matches")
	nack := flag.String("nack", "", "reject the responses of this type")
	reconnect := flag.Duration("reconnect", 0, "once, after this long: drop the stream and subscribe again")
	unsub := flag.String("unsubscribe", "", "TYPE=NAME@AFTER")
	id := flag.String("node", "test-client", "")
	services := flag.String("services", "", "node metadata dubbo.mesh.services: KEY,KEY...")
	flag.BoolVar(&verbose, "v", false, "print resources as JSON")
	flag.Parse()
	if *re != "" {
		until = regexp.MustCompile(*re)
	}
	var subs []*sub
	for _, a := range flag.Args() {
		t, names, _ := strings.Cut(a, "=")
		s := &sub{short: t, url: urls[t], known: map[string]string{}}
		if s.url == "" {
			s.url = t
			s.short = t[strings.LastIndex(t, ".")+1:]
		}
		if names != "" {
			s.names = strings.Split(names, ",")
		}
		subs = append(subs, s)
	}
	node := &core.Node{Id: *id, Cluster: "test", UserAgentName: "xds-test-client"}
	if *services != "" {
		keys := &structpb.ListValue{}
		for _, k := range strings.Split(*services, ",") {
			keys.Values = append(keys.Values, structpb.NewStringValue(k))
		}
		node.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"dubbo.mesh.services": structpb.NewListValue(keys)}}
	}
	conn, err := grpc.NewClient(*addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	end := time.After(*dur)
	drop := (<-chan time.Time)(nil)
	if *reconnect > 0 {
		drop = time.After(*reconnect)
	}
	for round := 0; ; round++ {
		ctx, cancel := context.WithCancel(context.Background())
		var s stream
		if *mode == "delta" {
			d, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
			check(err)
			s = &delta{d, node}
		} else {
			d, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
			check(err)
			s = &sotw{d, node}
		}
		var mu sync.Mutex
		auto := func(x *sub) bool { return x.short == "eds" && len(x.names) == 0 }
		for _, x := range subs {
			x.nonce, x.sent = "", false
			if !auto(x) {
				say("subscribe %s %q known=%v", x.short, x.names, x.known)
				check(s.subscribe(x, x.names, nil))
			}
		}
		if *unsub != "" && round == 0 {
			t, rest, _ := strings.Cut(*unsub, "=")
			name, after, _ := strings.Cut(rest, "@")
			d, err := time.ParseDuration(after)
			check(err)
			time.AfterFunc(d, func() {
				mu.Lock()
				defer mu.Unlock()
				for _, x := range subs {
					if x.short == t {
						x.names = slices.DeleteFunc(x.names, func(n string) bool { return n == name })
						delete(x.known, name)
						say("unsubscribe %s %q", t, name)
						check(s.subscribe(x, nil, []string{name}))
					}
				}
			})
		}
		done := make(chan error, 1)
		go func() {
			for {
				url, version, nonce, res, removed, err := s.recv()
				if err != nil {
					done <- err
					return
				}
				mu.Lock()
				var x *sub
				for _, y := range subs {
					if y.url == url {
						x = y
					}
				}
				if x == nil {
					say("response %s nobody asked for", url)
					mu.Unlock()
					continue
				}
				say("response %s version=%q nonce=%q resources=%d removed=%q", x.short, version, nonce, len(res), removed)
				for i := range res {
					r := &res[i]
					n, text := summary(r.any)
					if r.name == "" {
						r.name = n
					}
					say("  %s %q version=%q %s", x.short, r.name, r.version, text)
				}
				if *nack == x.short {
					say("NACK %s nonce=%q", x.short, nonce)
					check(s.answer(x, version, nonce, &status.Status{Code: 3, Message: "rejected by the test client"}))
				} else {
					for _, r := range res {
						x.known[r.name] = r.version
					}
					for _, n := range removed {
						delete(x.known, n)
					}
					say("ACK %s nonce=%q", x.short, nonce)
					check(s.answer(x, version, nonce, nil))
				}
				if x.short == "cds" {
					for _, y := range subs {
						if !auto(y) && !(y.short == "eds" && y.sent) {
							continue
						}
						var add []string
						for _, r := range res {
							if n, ok := edsNames(r.any); ok && !slices.Contains(y.names, n) {
								add = append(add, n)
							}
						}
						sort.Strings(add)
						if len(add) > 0 {
							y.names = append(y.names, add...)
							say("subscribe eds %q known=%v", add, y.known)
							check(s.subscribe(y, add, nil))
						}
					}
				}
				mu.Unlock()
			}
		}()
		select {
		case <-end:
			cancel()
			if until != nil {
				fmt.Println("never matched:", *re)
				os.Exit(1)
			}
			return
		case err := <-done:
			say("stream ended: %v", err)
			time.Sleep(300 * time.Millisecond)
		case <-drop:
			drop = nil
			say("dropping the stream")
		}
		cancel()
	}
}

type res struct {
	name, version string
	any           *anypb.Any
}

type stream interface {
	subscribe(x *sub, add, remove []string) error
	answer(x *sub, version, nonce string, e *status.Status) error
	recv() (url, version, nonce string, r []res, removed []string, err error)
}

type delta struct {
	s    discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	node *core.Node
}

func (d *delta) subscribe(x *sub, add, remove []string) error {
	r := &discovery.DeltaDiscoveryRequest{TypeUrl: x.url, ResourceNamesSubscribe: add, ResourceNamesUnsubscribe: remove, Node: d.node}
	if !x.sent {
		r.InitialResourceVersions = x.known
	}
	d.node, x.sent = nil, true
	return d.s.Send(r)
}

func (d *delta) answer(x *sub, _, nonce string, e *status.Status) error {
	return d.s.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: x.url, ResponseNonce: nonce, ErrorDetail: e})
}

func (d *delta) recv() (string, string, string, []res, []string, error) {
	r, err := d.s.Recv()
	if err != nil {
		return "", "", "", nil, nil, err
	}
	var out []res
	for _, x := range r.GetResources() {
		out = append(out, res{x.GetName(), x.GetVersion(), x.GetResource()})
	}
	return r.GetTypeUrl(), r.GetSystemVersionInfo(), r.GetNonce(), out, r.GetRemovedResources(), nil
}

type sotw struct {
	s    discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	node *core.Node
}

func (d *sotw) subscribe(x *sub, _, _ []string) error {
	x.sent = true
	r := &discovery.DiscoveryRequest{TypeUrl: x.url, ResourceNames: x.names, VersionInfo: x.version, ResponseNonce: x.nonce, Node: d.node}
	d.node = nil
	return d.s.Send(r)
}

func (d *sotw) answer(x *sub, version, nonce string, e *status.Status) error {
	x.nonce = nonce
	if e == nil {
		x.version = version
	}
	return d.s.Send(&discovery.DiscoveryRequest{TypeUrl: x.url, ResourceNames: x.names, VersionInfo: x.version, ResponseNonce: nonce, ErrorDetail: e})
}

func (d *sotw) recv() (string, string, string, []res, []string, error) {
	r, err := d.s.Recv()
	if err != nil {
		return "", "", "", nil, nil, err
	}
	var out []res
	for _, a := range r.GetResources() {
		out = append(out, res{"", "", a})
	}
	return r.GetTypeUrl(), r.GetVersionInfo(), r.GetNonce(), out, nil, nil
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
