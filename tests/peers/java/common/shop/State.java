package shop;

public enum State { NEW, PAID, SHIPPED }
