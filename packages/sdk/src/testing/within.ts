/** Returns the result of `work`. Throws an error with the message `otherwise` after `timeoutMs`. */
export async function within<Value>(
  timeoutMs: number,
  work: Promise<Value>,
  otherwise: string,
): Promise<Value> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const expired = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(otherwise)), timeoutMs);
  });
  return Promise.race([work, expired]).finally(() => clearTimeout(timer));
}
