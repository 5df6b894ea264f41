/**
 * Compares dotted versions by their numbers. A suffix (`-rc1`, `+ds`) is ignored.
 * @param {string} left
 * @param {string} right
 * @returns {number} negative, zero or positive
 */
export function compareVersions(left, right) {
  const a = numbersOf(left);
  const b = numbersOf(right);
  for (let index = 0; index < Math.max(a.length, b.length); index += 1) {
    const difference = (a[index] ?? 0) - (b[index] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

/** @param {string} version */
function numbersOf(version) {
  return (/^\d+(\.\d+)*/.exec(version)?.[0] ?? '0').split('.').map(Number);
}

/**
 * @param {string} debianVersion such as `1:10.0.2+ds-2+deb13u1~bpo12+1`
 * @returns {string} the upstream numbers, `10.0.2`
 */
export function upstreamVersion(debianVersion) {
  return /^(?:\d+:)?(\d+(?:\.\d+)*)/.exec(debianVersion)?.[1] ?? '0';
}
