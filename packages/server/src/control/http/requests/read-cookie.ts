/** Returns the raw value of the first cookie with this name in a `Cookie` header. */
export function readCookie(header: string | undefined, name: string): string | undefined {
  const cookies = (header ?? '').split(';').map((cookie) => cookie.trim());
  return cookies.find((cookie) => cookie.startsWith(`${name}=`))?.slice(name.length + 1);
}
