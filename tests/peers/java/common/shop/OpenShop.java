package shop;

import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;

/** The provider's side; name tells one from another. */
class OpenShop implements Shop {
    private final String name;
    private final AtomicInteger notes = new AtomicInteger();
    private final AtomicInteger entered = new AtomicInteger();

    OpenShop(String name) { this.name = name; }

    public String hello(String who) { return "hello " + who + " from " + name; }
    public byte[] bytes(byte[] body) { return body; }
    public Map<String, Object> map(Map<String, Object> map) { return map; }
    public Order order(Order order) {
        order.setState(State.PAID);
        return order;
    }
    public Label label(Label label) {
        label.setText(label.getText() + "!");
        label.setCount(label.getCount() + 1);
        return label;
    }
    public String buy(String sku) throws OutOfStock { throw new OutOfStock("no " + sku, 3); }
    public String fail(String why) { throw new IllegalStateException(why); }
    public String nap(int ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
        return "napped " + ms;
    }
    public void note(String text) { notes.incrementAndGet(); }
    public int notes() { return notes.get(); }
    public Map<String, String> context() {
        Dubbo.answerAttachment("back", "b-1");
        return Dubbo.requestAttachments();
    }
    public void touch() { Dubbo.answerAttachment("back", "b-2"); }
    public String alone(int ms) {
        entered.incrementAndGet();
        return nap(ms);
    }
    public String reject(String why) {
        entered.incrementAndGet();
        throw Dubbo.networkFailure(why);
    }
    public int entered() { return entered.get(); }

    static class Later implements LaterShop {
        public CompletableFuture<String> hello(String who) {
            return CompletableFuture.supplyAsync(() -> "later " + who);
        }
        public CompletableFuture<String> fail(String why) {
            return CompletableFuture.failedFuture(new IllegalStateException(why));
        }
    }
}
