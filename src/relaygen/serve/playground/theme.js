// Before the first paint: the colours that were chosen here last, if any.
try {
  const chosen = localStorage.getItem("relaygen-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Without storage the system's colours hold.
}
