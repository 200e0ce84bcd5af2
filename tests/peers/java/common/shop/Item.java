package shop;

import java.io.Serializable;
import java.math.BigDecimal;
import java.util.Map;

public class Item implements Serializable {
    private String sku;
    private int quantity;
    private BigDecimal price;
    private Map<String, String> tags;

    public String getSku() { return sku; }
    public void setSku(String sku) { this.sku = sku; }
    public int getQuantity() { return quantity; }
    public void setQuantity(int quantity) { this.quantity = quantity; }
    public BigDecimal getPrice() { return price; }
    public void setPrice(BigDecimal price) { this.price = price; }
    public Map<String, String> getTags() { return tags; }
    public void setTags(Map<String, String> tags) { this.tags = tags; }
}
