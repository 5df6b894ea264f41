export function Network() {
  return null;
}
