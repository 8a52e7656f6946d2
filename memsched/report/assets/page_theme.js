// Runs before anything is drawn, so that the page never flashes in the wrong colours.
document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
