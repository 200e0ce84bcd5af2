package shop;

import java.io.Serializable;
import java.util.List;

/** A flat object that the Go peers know too. */
public class Label implements Serializable {
    private String text;
    private int count;
    private List<String> words;

    public String getText() { return text; }
    public void setText(String text) { this.text = text; }
    public int getCount() { return count; }
    public void setCount(int count) { this.count = count; }
    public List<String> getWords() { return words; }
    public void setWords(List<String> words) { this.words = words; }

    @Override public String toString() { return text + " " + count + " " + words; }
}
