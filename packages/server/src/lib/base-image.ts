/** The built-in image: set-up builds it from Debian packages, and it is never fetched. */
export const BASE_IMAGE = 'coppice/base:1';
