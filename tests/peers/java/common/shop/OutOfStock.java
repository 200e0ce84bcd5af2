package shop;

/** A business exception with a field of its own. */
public class OutOfStock extends Exception {
    private int left;

    public OutOfStock() { }

    public OutOfStock(String message, int left) {
        super(message);
        this.left = left;
    }

    public int getLeft() { return left; }
    public void setLeft(int left) { this.left = left; }
}
