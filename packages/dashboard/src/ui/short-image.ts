/** Returns an image reference without its digest, which is too long to read. */
export function shortImage(image: string): string {
  const at = image.indexOf('@');
  return at > 0 ? image.slice(0, at) : image;
}
