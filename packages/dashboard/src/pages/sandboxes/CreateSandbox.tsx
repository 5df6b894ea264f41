export function CreateSandbox() {
  return null;
}
