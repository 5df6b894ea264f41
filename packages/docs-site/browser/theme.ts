/** Runs before the page is drawn: applies the theme that the reader chose earlier, and tells the style that scripts run. */
const root = document.documentElement;
root.dataset['script'] = '';
try {
  const chosen = localStorage.getItem('coppice-docs-theme');
  if (chosen === 'light' || chosen === 'dark') root.dataset['theme'] = chosen;
} catch (error) {
  // A browser may forbid the storage; then the theme is that of the system.
  console.debug(error);
}
