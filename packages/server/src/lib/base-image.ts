/** The built-in image: made at set-up from Debian packages, never fetched. */
export const BASE_IMAGE = 'coppice/base:1';
