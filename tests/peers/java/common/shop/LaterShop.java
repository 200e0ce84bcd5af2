package shop;

import java.util.concurrent.CompletableFuture;

/** An asynchronous signature, which Dubbo knows from 2.7 on. */
public interface LaterShop {
    CompletableFuture<String> hello(String name);
    CompletableFuture<String> fail(String why);
}
