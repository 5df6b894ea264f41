// Runs before the page is drawn: applies the theme that was chosen earlier.
try {
  const chosen = localStorage.getItem('coppice-theme');
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
} catch (error) {
  // A browser may forbid the storage; then the theme is that of the system.
  console.debug(error);
}
