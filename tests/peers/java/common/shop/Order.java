package shop;

import java.io.Serializable;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.Date;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Nested lists and maps, a date, decimals, an enum, an object met twice and one of its own class. */
public class Order implements Serializable {
    private Long id;
    private State state;
    private Date placed;
    private double weight;
    private List<Item> items;
    private Map<String, List<Item>> byShop;
    private Order parent;

    public Long getId() { return id; }
    public void setId(Long id) { this.id = id; }
    public State getState() { return state; }
    public void setState(State state) { this.state = state; }
    public Date getPlaced() { return placed; }
    public void setPlaced(Date placed) { this.placed = placed; }
    public double getWeight() { return weight; }
    public void setWeight(double weight) { this.weight = weight; }
    public List<Item> getItems() { return items; }
    public void setItems(List<Item> items) { this.items = items; }
    public Map<String, List<Item>> getByShop() { return byShop; }
    public void setByShop(Map<String, List<Item>> byShop) { this.byShop = byShop; }
    public Order getParent() { return parent; }
    public void setParent(Order parent) { this.parent = parent; }

    static Order sample() {
        Item item = new Item();
        item.setSku("tea-7");
        item.setQuantity(2);
        item.setPrice(new BigDecimal("12.50"));
        item.setTags(new HashMap<>(Map.of("colour", "gr\u00fcn")));
        Order parent = new Order();
        parent.setId(1L);
        parent.setState(State.SHIPPED);
        parent.setPlaced(new Date(60_000L));
        Order order = new Order();
        order.setId(9_007_199_254_740_993L);
        order.setState(State.NEW);
        order.setPlaced(new Date(1_700_000_000_123L));
        order.setWeight(1.25);
        order.setItems(new ArrayList<>(List.of(item, item)));
        order.setByShop(new HashMap<>(Map.of("east", new ArrayList<>(List.of(item)))));
        order.setParent(parent);
        return order;
    }

    /** Field by field, so that a difference says where. */
    String text() {
        Item first = items.get(0);
        return "id=" + id + " state=" + state + " placed=" + placed.getTime() + " weight=" + weight
            + " items=" + items.size() + " same=" + (first == items.get(1))
            + " price=" + first.getPrice() + " quantity=" + first.getQuantity()
            + " colour=" + byShop.get("east").get(0).getTags().get("colour")
            + " parent=" + parent.id + "/" + parent.state + "/" + parent.placed.getTime();
    }
}
