package shop;

import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/** Calls that begin at a steady rate, whatever became of the ones before, until it is told to stop. */
final class Load {
    private final ScheduledExecutorService clock = Executors.newSingleThreadScheduledExecutor();
    private final ExecutorService callers = Executors.newCachedThreadPool();
    private final Map<String, Integer> failed = new TreeMap<>();
    private int answered;
    private long last = System.nanoTime();
    private long longest;

    Load(int perSecond, Runnable call) {
        long period = TimeUnit.SECONDS.toNanos(1) / perSecond;
        clock.scheduleAtFixedRate(() -> callers.execute(() -> once(call)), 0, period, TimeUnit.NANOSECONDS);
    }

    private void once(Runnable call) {
        try {
            call.run();
            succeeded();
        } catch (RuntimeException e) {
            failed(Dubbo.code(e));
        }
    }

    private synchronized void succeeded() {
        answered++;
        long now = System.nanoTime();
        longest = Math.max(longest, now - last);
        last = now;
    }

    private synchronized void failed(Object code) { failed.merge("code " + code, 1, Integer::sum); }

    /** Calls that succeeded so far. */
    synchronized int answered() { return answered; }

    /** Stops: the calls that failed, by RpcException's code, and the longest time in which none succeeded. */
    String end() throws InterruptedException {
        clock.shutdown();
        clock.awaitTermination(1, TimeUnit.MINUTES);
        callers.shutdown();
        callers.awaitTermination(1, TimeUnit.MINUTES);
        return "failed=" + failed + " pause=" + TimeUnit.NANOSECONDS.toMillis(longest) + "ms";
    }
}
