package shop;

import java.util.Map;

/** What the peers call: one method per thing that a call can carry or do. */
public interface Shop {
    String hello(String name);
    byte[] bytes(byte[] body);
    Map<String, Object> map(Map<String, Object> map);
    Order order(Order order);
    Label label(Label label);
    String buy(String sku) throws OutOfStock;
    String fail(String why);
    String nap(int ms);
    /** One-way: nobody answers. */
    void note(String text);
    int notes();
    /** The attachments that the provider saw. */
    Map<String, String> context();
    /** Returns nothing, but with an attachment. */
    void touch();
    /** As nap, but the provider lets one caller in at a time. */
    String alone(int ms);
    /** Throws Dubbo's own exception, which this code thought of and not the framework. */
    String reject(String why);
    /** How many calls of alone and reject were let in. */
    int entered();
}
