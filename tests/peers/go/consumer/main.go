// consumer URL: a dubbo-go consumer of g1/shop.Shop:1.0.0 with hessian2. Reads commands, a line each, makes the
// call that the command names, and answers each with one line: "ok VALUE" or "error MESSAGE". Ends when its input ends.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"dubbo.apache.org/dubbo-go/v3/client"
	"dubbo.apache.org/dubbo-go/v3/common/constant"

	"shop/api"
)

type consumer struct{ shop, absent *client.Connection }

func main() {
	cli, err := client.NewClient()
	check(err)
	dial := func(name string) *client.Connection {
		conn, err := cli.Dial(name, client.WithURL(os.Args[1]), client.WithProtocolDubbo(),
			client.WithSerialization(constant.Hessian2Serialization), client.WithGroup(api.Group),
			client.WithVersion(api.Version), client.WithClusterFailFast(), client.WithRetries(0))
		check(err)
		return conn
	}
	c := consumer{dial(api.Interface), dial("shop.Absent")}
	fmt.Println("READY")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		command, arg, _ := strings.Cut(lines.Text(), " ")
		value, err := c.call(command, arg)
		answer := fmt.Sprintf("ok %v", value)
		if err != nil {
			answer = fmt.Sprintf("error %v", err)
		}
		fmt.Println(strings.Join(strings.Fields(answer), " "))
	}
}

func (c consumer) call(command, arg string) (any, error) {
	var text string
	switch command {
	case "hello", "fail", "refuse", "missing-method":
		err := unary(c.shop, 5*time.Second, &text, command, arg)
		return text, err
	case "label":
		var l *api.Label
		if err := unary(c.shop, 5*time.Second, &l, command, &api.Label{Text: "tea", Count: 41, Words: []string{"green"}}); err != nil {
			return nil, err
		}
		return *l, nil
	case "attachments":
		seen := map[any]any{} // dubbo-go reads a java.util.Map into this type only
		err := unary(c.shop, 5*time.Second, &seen, "context")
		return seen["there"], err
	case "nap", "timeout":
		ms, err := strconv.Atoi(arg)
		if err != nil {
			return nil, err
		}
		wait := 5 * time.Second
		if command == "timeout" {
			wait = 300 * time.Millisecond
		}
		err = unary(c.shop, wait, &text, "nap", int32(ms))
		return text, err
	case "absent":
		err := unary(c.absent, 5*time.Second, &text, "hello", arg)
		return text, err
	}
	return nil, fmt.Errorf("no command %s", command)
}

// unary makes one call. Only an option of the call sets its timeout: the reference's is not honoured.
func unary(conn *client.Connection, timeout time.Duration, resp any, method string, args ...any) error {
	ctx := context.WithValue(context.Background(), constant.AttachmentKey, map[string]any{"there": "t-1"})
	return conn.CallUnary(ctx, args, resp, method, client.WithCallRequestTimeout(timeout))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
