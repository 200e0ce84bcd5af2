package shop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/**
 * shop.Consumer URL: reads commands, a line each, and makes the call that the command names through URL.
 * Answers every command with one line: "ok VALUE", where VALUE is what the call returned, or
 * "error CLASS CODE MESSAGE", CODE being RpcException's code or "-". Ends when its input ends.
 */
public class Consumer {
    private static final String EMOJI = "a\ud83d\ude00b";

    private final String url;
    private final Shop shop;
    private Load load;

    private Consumer(String url) {
        this.url = url;
        this.shop = Dubbo.refer(Shop.class, url, null, null, 5000);
    }

    public static void main(String[] args) throws Exception {
        Consumer consumer = new Consumer(args[0]);
        System.out.println("READY " + Dubbo.LINE);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ");
            String answer;
            try {
                answer = "ok " + consumer.call(words[0], words.length > 1 ? words[1] : "");
            } catch (Throwable e) {
                answer = "error " + e.getClass().getName() + " " + Dubbo.code(e) + " " + e.getMessage();
            }
            System.out.println(answer.replaceAll("\\s+", " "));
        }
        Runtime.getRuntime().halt(0);
    }

    private Object call(String command, String arg) throws Exception {
        switch (command) {
            case "hello": return shop.hello(arg);
            case "bytes": return bytes(Integer.parseInt(arg));
            case "map": return map();
            case "order": return shop.order(Order.sample()).text();
            case "label": return label();
            case "buy": return buy();
            case "fail": return shop.fail(arg);
            case "nap": return shop.nap(Integer.parseInt(arg));
            case "timeout": return Dubbo.refer(Shop.class, url, null, null, 300).nap(Integer.parseInt(arg));
            case "oneway": return oneway();
            case "attachments": return attachments();
            case "touch": return touch();
            case "emoji": return emoji();
            case "group": return Dubbo.refer(Shop.class, url, "g1", "1.0.0", 5000).hello(arg);
            case "wrong-version": return Dubbo.refer(Shop.class, url, "g1", "9.9.9", 5000).hello(arg);
            case "invoke": return generic("hello", "java.lang.String", arg);
            case "invoke-order": return invokeOrder();
            case "invoke-fail": return generic("fail", "java.lang.String", arg);
            case "invoke-absent": return Dubbo.generic(url, "shop.Absent", "hello",
                new String[] {"java.lang.String"}, new Object[] {arg});
            case "echo": return Dubbo.echo(shop, arg);
            case "async": return Dubbo.async(() -> shop.hello(arg)).get(5, TimeUnit.SECONDS);
            case "later": return later().hello(arg).get(5, TimeUnit.SECONDS);
            case "later-fail": return laterFail(arg);
            case "alone": return alone(Integer.parseInt(arg));
            case "reject": return reject(arg);
            case "load": return load(Integer.parseInt(arg));
            case "answered": return load.answered();
            case "unload": return load.end();
            case "entered": return shop.entered();
            default: throw new IllegalArgumentException("no command " + command);
        }
    }

    private Object load(int perSecond) {
        load = new Load(perSecond, () -> shop.hello("w"));
        return perSecond;
    }

    private Object bytes(int length) {
        byte[] body = new byte[length];
        new Random(1).nextBytes(body);
        return Arrays.equals(shop.bytes(body), body) ? length + " equal bytes" : "other bytes";
    }

    private Object map() {
        Map<String, Object> map = new HashMap<>();
        map.put("int", 7);
        map.put("long", 1L << 40);
        map.put("double", 0.5);
        map.put("text", "x");
        map.put("truth", true);
        map.put("nothing", null);
        map.put("list", new ArrayList<>(List.of(1, "two")));
        return Objects.equals(shop.map(map), map) ? "equal map" : "other map";
    }

    private Object label() {
        Label label = new Label();
        label.setText("tea");
        label.setCount(41);
        label.setWords(new ArrayList<>(List.of("green", "black")));
        return Dubbo.refer(Shop.class, url, "g1", "1.0.0", 5000).label(label);
    }

    private Object buy() {
        try {
            return shop.buy("tea");
        } catch (OutOfStock e) {
            return e.getMessage() + ", left " + e.getLeft();
        }
    }

    private Object oneway() throws InterruptedException {
        int before = shop.notes();
        shop.note("x");
        for (int i = 0; i < 200 && shop.notes() == before; i++) Thread.sleep(10);
        return shop.notes() - before;
    }

    private Object attachments() {
        Dubbo.attach("there", "t-1");
        try {
            String there = shop.context().get("there");
            return "there=" + there + " back=" + Dubbo.answered("back");
        } finally {
            Dubbo.detach("there");
        }
    }

    private Object touch() {
        shop.touch();
        return "back=" + Dubbo.answered("back");
    }

    /** A pair of surrogates in an argument, in an attachment, and 40,000 of them, which takes several chunks. */
    private Object emoji() {
        String many = EMOJI.substring(1, 3).repeat(40_000);
        Dubbo.attach("nick", EMOJI);
        try {
            boolean attachment = EMOJI.equals(shop.context().get("nick"));
            boolean argument = shop.hello(EMOJI).startsWith("hello " + EMOJI + " from");
            boolean chunks = shop.hello(many).startsWith("hello " + many + " from");
            boolean lone = shop.hello("a\ud83d").startsWith("hello a\ud83d from");
            return "attachment=" + attachment + " argument=" + argument + " chunks=" + chunks + " lone=" + lone;
        } finally {
            Dubbo.detach("nick");
        }
    }

    private Object generic(String method, String type, Object arg) {
        return Dubbo.generic(url, Shop.class.getName(), method, new String[] {type}, new Object[] {arg});
    }

    private Object invokeOrder() {
        Map<String, Object> order = new HashMap<>();
        order.put("class", Order.class.getName());
        order.put("id", 5L);
        order.put("state", "NEW");
        Map<?, ?> answer = (Map<?, ?>) generic("order", Order.class.getName(), order);
        return "id=" + answer.get("id") + " state=" + answer.get("state");
    }

    private LaterShop later() { return Dubbo.refer(LaterShop.class, url, null, null, 5000); }

    private Object laterFail(String why) throws Exception {
        try {
            return later().fail(why).get(5, TimeUnit.SECONDS);
        } catch (ExecutionException e) {
            return e.getCause();
        }
    }

    /** Three calls at once of a method that lets one in; how many ended how. They wait: Java repeats no other. */
    private Object alone(int ms) throws Exception {
        ExecutorService callers = Executors.newFixedThreadPool(3);
        List<Future<String>> calls = callers.invokeAll(Collections.nCopies(3, () -> shop.alone(ms)));
        callers.shutdown();
        Map<String, Integer> ends = new TreeMap<>();
        for (Future<String> one : calls) {
            String end;
            try {
                end = one.get();
            } catch (ExecutionException e) {
                end = e.getCause().getClass().getSimpleName();
            }
            ends.merge(end, 1, Integer::sum);
        }
        return ends;
    }

    /** Everything that the application sees of an exception. */
    private Object reject(String why) {
        try {
            return shop.reject(why);
        } catch (RuntimeException e) {
            return e.getClass().getName() + " code=" + Dubbo.code(e) + " message=" + e.getMessage() + " cause="
                + e.getCause() + " suppressed=" + e.getSuppressed().length + " frames=" + e.getStackTrace().length
                + " stack=" + Arrays.hashCode(e.getStackTrace());
        }
    }
}
